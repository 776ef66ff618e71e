"""Running sums and products along an axis that is not the last, in vectors of what is behind it.

    for block of columns in parallel
      acc = the neutral element                                  registers
      for step of the axis
        acc = acc + x[step, block]; result[step, block] = acc    the other way round where each excludes its own element

TVM's own loops take a column after the other, which touch a cache line for each element.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import te, tirx
from tvm.tirx import ForKind

from backends.tensorir.emit import Nest, int64, pieces, ramp, splat

Expr = Any  # a TensorIR expression

_ELEMENTS = 8
"""Elements of a vector."""
_WIDEST, _NARROWEST = 64, 16
"""Elements of a block: lines that lie together, and one."""
_TASKS = 16
"""Blocks that keep a few threads busy."""
_PARALLEL = 1 << 12
"""Elements that take as long as waking threads."""


def scanned_columns(x: te.Tensor, *, dtype: str, exclusive: bool, multiplies: bool) -> te.Tensor:
    """Return the running sums of [before, steps, columns] along the steps, or products where it `multiplies`; those of
    the elements before each one where they are `exclusive`. All extents are numbers."""
    before, steps, columns = (int(extent) for extent in x.shape)
    width = _WIDEST
    while width > _NARROWEST and before * -(-columns // width) < _TASKS:
        width //= 2

    def loops(ins: list[tirx.Buffer], outs: list[tirx.Buffer]) -> tirx.Stmt:
        nest = Nest()
        scan = _Scan(nest, ins[0], outs[0], steps, dtype, exclusive=exclusive, multiplies=multiplies)
        many = before * steps * columns
        kind = ForKind.PARALLEL if many >= _PARALLEL else ForKind.SERIAL
        whole, rest = divmod(columns, width)
        blocks = whole + bool(rest)
        with nest.loop("task", before * blocks, kind) as task:
            row, block = tirx.floordiv(task, blocks), tirx.floormod(task, blocks)
            if not rest or not whole:
                scan.block(row, block * width, width if whole else rest)
            else:
                nest.choose(
                    block < whole,
                    lambda: scan.block(row, block * width, width),
                    lambda: scan.block(row, int64(whole * width), rest),
                )
        return nest.finish()

    return te.extern([x.shape], [x], loops, name="scanned_columns", dtype=[dtype])


@dataclass(frozen=True)
class _Scan:
    """Writes the blocks of `data` into `result`."""

    nest: Nest
    data: tirx.Buffer
    result: tirx.Buffer
    steps: int
    dtype: str
    exclusive: bool
    multiplies: bool

    @property
    def neutral(self) -> Expr:
        """What the first element is added to, or multiplied by: -0, so that a first -0 stays; 0 is what comes before
        it."""
        if self.multiplies:
            return tirx.const(1, self.dtype)
        return tirx.const(-0.0 if "float" in self.dtype and not self.exclusive else 0, self.dtype)

    def block(self, row: Expr, first: Expr, width: int) -> None:
        """Emit a block of `width` columns from `first` on."""
        nest, parts = self.nest, pieces(width, _ELEMENTS)
        sums = [nest.allocate(f"sum{at}", (lanes,), self.dtype) for at, lanes in parts]
        for total, (_, lanes) in zip(sums, parts, strict=True):
            nest.store(total, [ramp(int64(0), lanes)], splat(self.neutral, lanes))
        with nest.loop("step", self.steps) as step:
            for total, (at, lanes) in zip(sums, parts, strict=True):
                place, own = [row, step, ramp(first + at, lanes)], [ramp(int64(0), lanes)]
                before = tirx.BufferLoad(total, own)
                element = tirx.BufferLoad(self.data, place)
                if str(self.data.dtype) != self.dtype:
                    element = element.astype(self.dtype if lanes == 1 else f"{self.dtype}x{lanes}")
                if self.exclusive:
                    nest.store(self.result, place, before)
                nest.store(total, own, before * element if self.multiplies else before + element)
                if not self.exclusive:
                    nest.store(self.result, place, tirx.BufferLoad(total, own))
