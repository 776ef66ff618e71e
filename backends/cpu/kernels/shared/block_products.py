"""Products over a block of rows whose number only a call knows, as the two of an attention are.

    for tile of rows                          of whole pairs or fours that balance, up to the largest
      for panel of vectors                    whole panels, then single vectors
        if height <= 4, 8, ...                a body for each
          acc[height, vectors] = 0            registers
          for k: acc += a[row, k] * b[k, vector]
          result = acc
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product as product_of

from tvm import tirx

from backends.cpu.costs import FMA_LATENCY, FMA_PER_CYCLE
from backends.cpu.kernels.shared.arithmetic import FLOAT32
from backends.cpu.kernels.shared.epilogue import RegisterRows
from backends.cpu.kernels.shared.open_split import OpenSplit, ceil_div
from backends.tensorir.emit import Expr, Nest, guard


@dataclass(frozen=True)
class OpenProduct:
    """A product of a block of rows.

    Attributes:
        depth: Steps of k.
        left: (row of the block, step of k) -> the element there.
        right: (vector, step of k, elements) -> the vector there.
        start: (row, vector, elements) -> what a sum begins with where `starts` holds; 0 elsewhere.
        store: (row, vector, sum) -> adds the store of a sum.
    """

    depth: Expr
    left: Callable[[Expr, Expr], Expr]
    right: Callable[[Expr, Expr, int], Expr]
    store: Callable[[Expr, Expr, Expr], None]
    start: Callable[[Expr, Expr, int], Expr] | None = None
    starts: Expr = None


@dataclass(frozen=True)
class Panels:
    """Vectors of a right operand.

    Attributes:
        first: The first.
        count: Of panels.
        parts: Elements of each vector of a panel.
    """

    first: Expr
    count: Expr
    parts: Sequence[int]


@dataclass(frozen=True)
class RowUnits:
    """In what units rows of a block are counted to make tiles of them.

    Attributes:
        most: Rows of a tile at most.
        unit: A tile has whole units of so many rows, but for the last.
        least: Rows of the lowest body.
    """

    most: int
    unit: int = 2
    least: int = 2

    @staticmethod
    def of_four(most: int) -> RowUnits:
        """Return units of four rows where the tallest tile has whole ones of them, pairs otherwise; lower tiles than of
        four rows are none of their own. LLVM takes a third less for them than for a body of each pair."""
        return RowUnits(most, 4 if most % 4 == 0 else 2, min(4, most))

    def split(self, nest: Nest, rows: Expr, most: int) -> OpenSplit:
        """Return the units of `rows` rows in the fewest balanced parts of up to `most` rows."""
        return OpenSplit.of(nest, ceil_div(rows, self.unit), -(-most // self.unit))

    def heights(self, vectors: int) -> list[int]:
        """Return the rows of the bodies of tiles of so many vectors.

        Fewer rows than keep the multipliers busy are as fast as these, as it is latency that bounds both: there is no
        body for them but one of two rows, for what is stored.
        """
        enough = -(-FMA_LATENCY * FMA_PER_CYCLE // vectors)
        lower = range(self.least, self.most, self.unit)
        return [*(height for height in lower if height == 2 or height >= enough), -(-self.most // 2) * 2]


@dataclass(frozen=True)
class RowTile:
    """Rows of a block that are computed together.

    Attributes:
        first, last: The first and the last.
        height: How many there are.
        units: How many there may be.
    """

    first: Expr
    last: Expr
    height: Expr
    units: RowUnits

    def bodies(self, vectors: int) -> Iterator[tuple[list[Expr], Expr | None]]:
        """Yield the rows that a tile of so many vectors is written for, and the condition under which it is that one;
        rows behind the last are the last, once more."""
        heights = self.units.heights(vectors)
        below = 0
        for height in heights:
            rows = [self.first + i if i <= below else tirx.min(self.first + i, self.last) for i in range(height)]
            condition = tirx.all(self.height > below, self.height <= height)
            yield rows, condition if len(heights) > 1 else None
            below = height


@contextmanager
def row_tiles(nest: Nest, rows: Expr, units: RowUnits) -> Iterator[RowTile]:
    """Open the loop over tiles of `rows` rows."""
    parts, unit = units.split(nest, rows, units.most), units.unit
    with nest.loop("tile", parts.count) as tile:
        first = nest.keep("first_row", parts.start(tile) * unit)
        height = nest.keep("height", tirx.min(parts.size(tile) * unit, rows - first))
        yield RowTile(first, nest.keep("last_row", first + height - 1), height, units)


def multiply(nest: Nest, product: OpenProduct, tile: RowTile, panels: Panels) -> None:
    """Add the register tiles of rows by panels."""
    for rows, condition in tile.bodies(len(panels.parts)):
        with guard(nest, condition), nest.loop("panel", panels.count) as panel:
            _multiply(nest, product, rows, panels.first + panel * len(panels.parts), panels.parts)


def multiply_row(nest: Nest, product: OpenProduct, row: Expr, panel: Panels) -> None:
    """Add a register tile of one row by the vectors of a panel."""
    _multiply(nest, product, [row], panel.first, panel.parts)


def _multiply(nest: Nest, product: OpenProduct, rows: Sequence[Expr], vector: Expr, parts: Sequence[int]) -> None:
    """Add a register tile of these rows, by vectors of so many elements each from `vector` on."""
    registers = RegisterRows(nest, len(rows), list(enumerate(parts)))
    if product.start is not None:
        with nest.when(product.starts):
            for (i, row), (place, count) in product_of(enumerate(rows), enumerate(parts)):
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
