"""The two products of an attention over a block of rows whose number only a call knows.

    for tile of rows                          of even heights that balance, up to the largest
      if height == 1, 2, 4, ...               a body for each
        for panel of vectors                  of keys: whole panels, then single vectors
          acc[height, vectors] = 0            registers
          for k: acc += a[row, k] * b[k, vector]
          result = acc
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import tirx

from backends.cpu.kernels.attention.open_split import OpenSplit, ceil_div, keep
from backends.cpu.kernels.shared.arithmetic import FLOAT32
from backends.cpu.kernels.shared.epilogue import RegisterRows
from backends.tensorir.emit import Expr, Nest


@dataclass(frozen=True)
class OpenProduct:
    """A product of a block of rows.

    Attributes:
        depth: Steps of k.
        left: (row of the block, step of k) -> the element there.
        right: (vector, step of k, elements) -> the vector there.
        start: (row, vector, elements) -> what a sum begins with; None for 0.
        store: (row, vector, sum) -> adds the store of a sum.
    """

    depth: Expr
    left: Callable[[Expr, Expr], Expr]
    right: Callable[[Expr, Expr, int], Expr]
    store: Callable[[Expr, Expr, Expr], None]
    start: Callable[[Expr, Expr, int], Expr] | None = None


def each_tile(nest: Nest, rows: Expr, most: int, body: Callable[[list[Expr]], None]) -> None:
    """Add the loop over tiles of up to `most` of `rows` rows; `body` gets those of one.

    Tiles have whole pairs of rows, so that a body for each even height will do: where the last one has an odd number,
    its last row is computed twice.
    """
    pairs = OpenSplit.of(nest, ceil_div(rows, 2), max(most // 2, 1))
    with nest.loop("tile", pairs.count) as tile:
        first = keep(nest, "first_row", pairs.start(tile) * 2)
        height = keep(nest, "height", tirx.min(pairs.size(tile) * 2, rows - first))
        last = keep(nest, "last_row", first + height - 1)
        for size in (1, *range(2, most + 1, 2)):
            with nest.when(tirx.any(height.equal(size), height.equal(size - 1)) if size > 2 else height.equal(size)):
                body([first + row for row in range(size - 1)] + [last])


def multiply(nest: Nest, product: OpenProduct, rows: Sequence[Expr], vector: Expr, parts: Sequence[int]) -> None:
    """Add a register tile of these rows, by vectors of so many elements each from `vector` on."""
    registers = RegisterRows(nest, len(rows), list(enumerate(parts)))
    if product.start is not None:
        for i, row in enumerate(rows):
            for place, count in enumerate(parts):
                registers.write(i, place, product.start(row, vector + place, count))
    with nest.loop("k", product.depth) as k:
        weights = [
            nest.bind(f"w{place}", product.right(vector + place, k, count)) for place, count in enumerate(parts)
        ]
        for i, row in enumerate(rows):
            value = nest.bind(f"a{i}", product.left(row, k))
            for place, weight in enumerate(weights):
                total = FLOAT32.multiply_add(registers.read(i, place), value, weight, parts[place])
                registers.write(i, place, total)
    for i, row in enumerate(rows):
        for place in range(len(parts)):
            product.store(row, vector + place, registers.read(i, place))
