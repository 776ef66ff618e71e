"""Maps whose result is contiguous along one axis and whose input along another: squares turned in registers.

```
for other axes, for block of `lanes` positions of t:                # t: the input's contiguous axis
    for block of `lanes` positions of s:                            # s: the result's contiguous axis
        row[j] = input[s + j, t : t + lanes]       for j < lanes    # whole cache lines of the input
        turned[i, :] = row[:][i]                                    # log2(lanes) rounds of interleaving
        for i in T.unroll(lanes): for v in T.vectorized(lanes): out[t + i, s + v] = f(turned[i, v], ...)
```
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx
from tvm.ir import Var
from tvm_ffi import StructuralKey

from backends.cpu.kernels.stitch_stages.tiled_stage import At, LoopAxis, Names, TiledStage
from backends.cpu.kernels.stitch_stages.vector_axis import ELEMENT_BYTES, Turn
from backends.tensorir.nests import allocate, bound, index, loop, sequence, unrolled, vectorized
from backends.tensorir.stages import dtype_of

Expr = Any


def write_transpose(tiled: TiledStage, turn: Turn, vector_bytes: int) -> tirx.Stmt:
    """Return the loops of a stage with a `Turn`; the tile fixes `lanes` positions of the turned load's contiguous
    axis."""
    loops, side = tiled.loops, vector_bytes // ELEMENT_BYTES
    across = next(axis for axis in loops.spatial if axis.has(turn.across))
    along = loops.along(loops.spatial)
    assert along is not None
    square = allocate(side * side, dtype_of(turn.load.buffer), "turned")
    squares = _Squares(tiled=tiled, turn=turn, across=across, along=along, square=square, side=side)
    others = [axis for axis in loops.spatial if axis is not across and axis is not along]
    return sequence(tirx.AllocBuffer(square), tiled.nest(others, dict(loops.at), squares.row))


@dataclass(frozen=True)
class _Squares:
    """Squares that are turned one by one.

    Attributes:
        across, along: The contiguous axes of the input and of the result.
        square: Where each is when it is turned.
        side: Its extent along both axes.
    """

    tiled: TiledStage
    turn: Turn
    across: LoopAxis
    along: LoopAxis
    square: Var
    side: int

    def row(self, at: At) -> tirx.Stmt:
        """Return the squares along the result's axis where the others have the values `at`."""
        full, rest = self.along.extent // self.side, self.along.extent % self.side
        whole = loop(full, lambda block: self._square(at, block * self.side), name="block")
        return sequence(whole, self._square(at, index(self.along.extent - self.side))) if rest else whole

    def _square(self, at: At, begin: Expr) -> tirx.Stmt:
        corner = tirx.Var("corner", "int64")
        self.tiled.scope.learn(corner, self.along.extent - self.side + 1)
        statements: list[tirx.Stmt] = [tirx.Bind(corner, begin)]
        names, rows = self._rows(at, corner)
        statements += [tirx.Bind(var, value) for var, value in names]
        for i, column in enumerate(_turned(rows, self.side)):
            line_of = tirx.Ramp(index(i * self.side), index(1), self.side)
            statements.append(tirx.BufferStore(self.square, column, [line_of]))

        def line(i: Var) -> tirx.Stmt:
            self.tiled.scope.learn(i, self.side)
            return vectorized(self.side, lambda v: self._element(at, corner, i, v))

        return sequence(*statements, unrolled(self.side, line))

    def _rows(self, at: At, corner: Expr) -> tuple[Names, list[Expr]]:
        dtype = dtype_of(self.turn.load.buffer)
        names: Names = []
        rows: list[Expr] = []
        for j in range(self.side):
            position_names, here = self.tiled.scope.enter(self.along, corner + index(j))
            names += position_names
            found = self._flat_load(at | self.across.at(self.across.begin) | here)
            position = tirx.Ramp(found.indices[-1], index(1), self.side)
            load = tirx.BufferLoad(found.source, [*found.indices[:-1], position])
            rows.append(tirx.Var(f"row{j}", f"{dtype}x{self.side}"))
            names.append((rows[-1], load))
        return names, rows

    def _flat_load(self, at: At) -> Expr:
        scope = replace(self.tiled.scope, inlined={})
        _, load = scope.resolve(tirx.BufferLoad(self.turn.load.buffer, list(self.turn.load.indices)), at)
        return load

    def _element(self, at: At, corner: Expr, i: Expr, v: Expr) -> tirx.Stmt:
        scope = self.tiled.scope
        names_t, here_t = scope.enter(self.across, self.across.begin + i)
        names_s, here_s = scope.enter(self.along, corner + v)
        here = at | here_t | here_s
        turned = self._flat_load(here)

        def place(buffer: Var, indices: Sequence[Expr]) -> Expr:
            load = scope.place(buffer, indices)
            same = load.source.same_as(turned.source) and StructuralKey(load) == StructuralKey(turned)
            return tirx.BufferLoad(self.square, [i * self.side + v]) if same else load

        names, value = replace(scope, place=place).resolve(self.tiled.stage.value, here)
        return bound([*names_t, *names_s], self.tiled.store(here, names, value))


def _turned(rows: list[Expr], side: int) -> list[Expr]:
    """Return the columns of a square by log2(side) rounds, which interleave row i with row i + side / 2."""
    low = [tirx.const(i // 2 + (i % 2) * side, "int32") for i in range(side)]
    high = [tirx.const(side // 2 + i // 2 + (i % 2) * side, "int32") for i in range(side)]
    for _ in range(side.bit_length() - 1):
        pairs = zip(rows[: side // 2], rows[side // 2 :], strict=True)
        rows = [tirx.Shuffle([a, b], order) for a, b in pairs for order in (low, high)]
    return rows
