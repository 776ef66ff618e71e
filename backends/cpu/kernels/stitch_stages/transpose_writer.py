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
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import Var
from tvm_ffi import StructuralKey

from backends.cpu.kernels.stitch_stages.stage_writer import At, LoopAxis, StageWriter
from backends.cpu.kernels.stitch_stages.vector_axis import ELEMENT_BYTES, Turn
from backends.tensorir.inlining import Resolver
from backends.tensorir.nests import allocate, bound, index, loop, sequence, unrolled, vectorized
from backends.tensorir.stages import dtype_of

Expr = Any


@dataclass
class TransposeWriter(StageWriter):
    """Writes a stage with a `Turn`; the tile fixes `lanes` positions of the turned load's contiguous axis."""

    turn: Turn | None = None

    def write(self) -> tirx.Stmt:
        """Return the loops."""
        assert self.turn is not None
        square = allocate(self._side * self._side, dtype_of(self.turn.load.buffer), "turned")
        across = next(axis for axis in self.spatial if axis.has(self.turn.across))
        along = self._vector_loop(self.spatial)
        assert along is not None
        others = [axis for axis in self.spatial if axis is not across and axis is not along]

        def squares(at: At) -> tirx.Stmt:
            full, rest = along.extent // self._side, along.extent % self._side
            whole = loop(full, lambda block: self._square(at, across, along, block * self._side, square), name="block")
            if not rest:
                return whole
            return sequence(whole, self._square(at, across, along, index(along.extent - self._side), square))

        return sequence(tirx.AllocBuffer(square), self._nest(others, dict(self.at), squares))

    @property
    def _side(self) -> int:
        return self.vector_bytes // ELEMENT_BYTES

    def _square(self, at: At, across: LoopAxis, along: LoopAxis, begin: Expr, square: Var) -> tirx.Stmt:
        corner = tirx.Var("corner", "int64")
        self._learn(corner, along.extent - self._side + 1)
        statements: list[tirx.Stmt] = [tirx.Bind(corner, begin)]
        names, rows = self._rows(at, across, along, corner)
        statements += [tirx.Bind(var, value) for var, value in names]
        for i, column in enumerate(_turned(rows, self._side)):
            line_of = tirx.Ramp(index(i * self._side), index(1), self._side)
            statements.append(tirx.BufferStore(square, column, [line_of]))

        def line(i: Var) -> tirx.Stmt:
            self._learn(i, self._side)
            return vectorized(self._side, lambda v: self._element(at, across, along, corner, i, v, square))

        return sequence(*statements, unrolled(self._side, line))

    def _rows(
        self, at: At, across: LoopAxis, along: LoopAxis, corner: Expr
    ) -> tuple[list[tuple[Var, Expr]], list[Expr]]:
        assert self.turn is not None
        dtype = dtype_of(self.turn.load.buffer)
        names: list[tuple[Var, Expr]] = []
        rows: list[Expr] = []
        for j in range(self._side):
            position_names, here = self._enter(along, corner + index(j))
            names += position_names
            found = self._flat_load(at | across.at(across.begin) | here)
            position = tirx.Ramp(found.indices[-1], index(1), self._side)
            load = tirx.BufferLoad(found.source, [*found.indices[:-1], position])
            rows.append(tirx.Var(f"row{j}", f"{dtype}x{self._side}"))
            names.append((rows[-1], load))
        return names, rows

    def _flat_load(self, at: At) -> Expr:
        assert self.turn is not None
        resolver = Resolver({}, self.place, self.analyzer)
        return resolver.resolve(tirx.BufferLoad(self.turn.load.buffer, list(self.turn.load.indices)), at)

    def _element(
        self, at: At, across: LoopAxis, along: LoopAxis, corner: Expr, i: Expr, v: Expr, square: Var
    ) -> tirx.Stmt:
        names_t, here_t = self._enter(across, across.begin + i)
        names_s, here_s = self._enter(along, corner + v)
        here = at | here_t | here_s
        turned = self._flat_load(here)

        def place(buffer: Var, indices: Sequence[Expr]) -> Expr:
            load = self.place(buffer, indices)
            same = load.source.same_as(turned.source) and StructuralKey(load) == StructuralKey(turned)
            return tirx.BufferLoad(square, [i * self._side + v]) if same else load

        resolver = Resolver(self.inlined, place, self.analyzer)
        value = resolver.resolve(self.stage.value, here)
        return bound([*names_t, *names_s], self._store(here, resolver.bindings, value))


def _turned(rows: list[Expr], side: int) -> list[Expr]:
    """Return the columns of a square by log2(side) rounds, which interleave row i with row i + side / 2."""
    low = [tirx.const(i // 2 + (i % 2) * side, "int32") for i in range(side)]
    high = [tirx.const(side // 2 + i // 2 + (i % 2) * side, "int32") for i in range(side)]
    for _ in range(side.bit_length() - 1):
        pairs = zip(rows[: side // 2], rows[side // 2 :], strict=True)
        rows = [tirx.Shuffle([a, b], order) for a, b in pairs for order in (low, high)]
    return rows
