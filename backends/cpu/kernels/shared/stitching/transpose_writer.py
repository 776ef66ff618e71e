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
from contextlib import ExitStack
from dataclasses import dataclass, replace

from tvm import tirx
from tvm.ir import Var
from tvm.tirx import ForKind
from tvm_ffi import StructuralKey

from backends.cpu.kernels.shared.stitching.tiled_stage import At, LoopAxis, TiledStage
from backends.cpu.kernels.shared.stitching.vector_axis import ELEMENT_BYTES, Turn
from backends.tensorir.collapsing import run_extent
from backends.tensorir.emit import Expr, Nest, int64, ramp
from backends.tensorir.extents import Extent, least
from backends.tensorir.flat_buffers import flat_buffer
from backends.tensorir.stages import dtype_of


def write_transpose(tiled: TiledStage, turn: Turn, vector_bytes: int) -> None:
    """Add the loops of a stage with a `Turn`; the tile fixes `lanes` positions of the turned load's contiguous
    axis."""
    loops, side = tiled.loops, vector_bytes // ELEMENT_BYTES
    across = next(axis for axis in loops.spatial if axis.has(turn.across))
    along = loops.along(loops.spatial)
    assert along is not None
    square = flat_buffer(side * side, dtype_of(turn.load.buffer), "turned")
    squares = _Squares(tiled=tiled, turn=turn, across=across, along=along, square=square, side=side)
    others = [axis for axis in loops.spatial if axis is not across and axis is not along]
    tiled.nest.add(tirx.AllocBuffer(square))
    with tiled.over(others, dict(loops.at)) as at:
        squares.row(at)


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

    def row(self, at: At) -> None:
        """Add the squares along the result's axis where the others have the values `at`."""
        with self.tiled.nest.run("block", self.along.extent // self.side) as block:
            self._square(at, block * self.side)
        if not isinstance(self.along.extent, int):
            self._rest(at, self.along.extent % self.side)
        elif self.along.extent % self.side:
            self._square(at, int64(self.along.extent - self.side))

    def _rest(self, at: At, rest: Expr) -> None:
        """Add what whole squares leave of as many positions as a call says: a square with idle lanes, or elements."""
        nest, begin = self.tiled.nest, self.along.extent - rest
        if self.tiled.lanes_may_idle(self.along, at, self.turn.load):
            with nest.when(rest > 0):
                self._square(at, begin, rest)
            return
        with nest.run("i", rest) as i, nest.run("u", self._lines) as line:
            self.tiled.scope.learn(line, self.side)
            here = at | self.tiled.scope.enter(self.across, self.across.begin + line)
            here |= self.tiled.scope.enter(self.along, begin + i)
            self.tiled.store(here, *self.tiled.resolve(here))

    @property
    def _lines(self) -> Extent:
        """How many lines of a square there are in the tile."""
        whole = run_extent(self.across.run)
        return self.side if isinstance(whole, int) else least(self.side, whole - self.across.begin)

    def _square(self, at: At, begin: Expr, active: Expr = None) -> None:
        """Add the square at `begin` of the result's axis, of which `active` positions are computed, or all."""
        nest, lines = self.tiled.nest, self._lines
        if isinstance(lines, int):
            self._turn(at, begin, active)
            return
        with nest.masked(lines):
            self._turn(at, begin, active)

    def _turn(self, at: At, begin: Expr, active: Expr) -> None:
        nest, scope, lines = self.tiled.nest, self.tiled.scope, self._lines
        corner = nest.bind("corner", begin)
        scope.learn(corner, self.along.extent - self.side + 1 if active is None else self.along.extent)
        for i, column in enumerate(turn_square(nest, self._rows(at, corner, active), self.side)):
            nest.store(self.square, [ramp(int64(i * self.side), self.side)], column)
        with nest.run("u", self.side, ForKind.UNROLLED) as line, ExitStack() as opened:
            scope.learn(line, self.side)
            if not isinstance(lines, int):
                opened.enter_context(nest.when(line < lines))
            if active is not None or not isinstance(lines, int):
                opened.enter_context(nest.masked(int64(self.side) if active is None else active))
            with nest.run("v", self.side, ForKind.VECTORIZED) as v:
                self._element(at, corner, line, v)

    def _rows(self, at: At, corner: Expr, active: Expr) -> list[Expr]:
        """Return the rows of the input under a square, each by its name; idle ones are the last."""
        rows: list[Expr] = []
        for j in range(self.side):
            row = int64(j) if active is None else tirx.min(int64(j), active - 1)
            here = self.tiled.scope.enter(self.along, corner + row)
            found = self._flat_load(at | self.across.at(self.across.begin) | here)
            load = tirx.BufferLoad(found.source, [*found.indices[:-1], ramp(found.indices[-1], self.side)])
            rows.append(self.tiled.nest.bind(f"row{j}", load))
        return rows

    def _flat_load(self, at: At) -> Expr:
        scope = replace(self.tiled.scope, inlined={})
        _, load = scope.resolve(tirx.BufferLoad(self.turn.load.buffer, list(self.turn.load.indices)), at)
        return load

    def _element(self, at: At, corner: Expr, i: Expr, v: Expr) -> None:
        scope = self.tiled.scope
        # `(corner + v) % 32`, of a reshape, is `corner + v` only where that has a name: see `Scope.enter`.
        position = self.tiled.nest.bind("s", corner + v)
        scope.learn(position, self.along.extent)
        here = at | scope.enter(self.across, self.across.begin + i) | scope.enter(self.along, position)
        turned = self._flat_load(here)

        def place(buffer: Var, indices: Sequence[Expr]) -> Expr:
            load = scope.place(buffer, indices)
            same = load.source.same_as(turned.source) and StructuralKey(load) == StructuralKey(turned)
            return tirx.BufferLoad(self.square, [i * self.side + v]) if same else load

        names, value = replace(scope, place=place).resolve(self.tiled.stage.value, here)
        self.tiled.store(here, names, value)


def turn_square(nest: Nest, rows: list[Expr], side: int) -> list[Expr]:
    """Return the columns of a square by log2(side) rounds, which interleave row i with row i + side / 2.

    What a round makes is read twice by the next one, and is kept: written out where it is read, 64 shuffles are 240.
    """
    low = [tirx.const(i // 2 + (i % 2) * side, "int32") for i in range(side)]
    high = [tirx.const(side // 2 + i // 2 + (i % 2) * side, "int32") for i in range(side)]
    for turn in range(side.bit_length() - 1):
        if turn:
            rows = [nest.keep("turning", row) for row in rows]
        pairs = zip(rows[: side // 2], rows[side // 2 :], strict=True)
        rows = [tirx.Shuffle([a, b], order) for a, b in pairs for order in (low, high)]
    return rows
