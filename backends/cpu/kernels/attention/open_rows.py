"""What stands between the products for a block of rows and keys whose sizes only a call knows: an epilogue of the
first, and a softmax in the online form of `softmax`, or none.

    for row
      scores = epilogue(scores)                        whole vectors, and one of which some lanes are idle
      scores behind the last key = -inf                up to a whole vector
      new_top = max(top, max over scores)
      scale = exp(top - new_top); total *= scale       where there were keys before
      top = new_top
    for row
      scores = exp(scores - top)
      total += sum over scores
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields

from tvm import tirx
from tvm.ir import TensorLoad, Var
from tvm.sym import Analyzer
from tvm.tirx import ForKind

from backends.cpu.kernels.attention.softmax import weight_of
from backends.tensorir.emit import Expr, Nest, int64, ramp, splat
from backends.tensorir.inlining import uses
from backends.tensorir.roles import Output
from backends.tensorir.softmax_rows import LEAST
from backends.tensorir.stages import substitute
from backends.tensorir.vectors import fold_lanes
from fusion.structural import contains, find

_DIVISIONS = (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)
_HIDDEN = tirx.const(float("-inf"), "float32")


@dataclass(frozen=True)
class RowState:
    """What a block of rows keeps, one number a row.

    Attributes:
        top, total: Maximum and sum of the keys so far.
        scale: What multiplies all that was summed before.
    """

    top: Var
    total: Var
    scale: Var

    @staticmethod
    def allocate(nest: Nest, rows: int) -> RowState:
        """Return the buffers of `rows` rows, allocated where `nest` stands."""
        return RowState(*(nest.allocate(part.name, (rows,)) for part in fields(RowState)))


@dataclass(frozen=True)
class KeyBlock:
    """Keys whose scores a block of rows has at a time.

    Attributes:
        first: The first key.
        first_vector: In which vector of keys it is.
        keys, vectors: How many there are.
        is_later: Whether there are keys before.
    """

    first: Expr
    first_vector: Expr
    keys: Expr
    vectors: Expr
    is_later: Expr


@dataclass(frozen=True)
class OpenRows:
    """Writes the loops.

    Attributes:
        scores: A row of scores every `stride` elements, which become the weights.
        state: Of the softmax; None where there is none.
        output: What is made of a score before; it stores to what the softmax reads.
        rows: How many rows the buffers have.
    """

    nest: Nest
    scores: Var
    stride: int
    state: RowState | None
    output: Output
    rows: int
    lanes: int

    def clear(self) -> None:
        """Emit the start of a block of rows."""
        if self.state is None:
            return
        start = {self.state.top: LEAST, self.state.total: 0.0}
        for buffer, value in start.items():
            for at in range(0, self.rows, self.lanes):
                self.nest.store(buffer, [ramp(at, self.lanes)], splat(tirx.const(value, "float32"), self.lanes))

    def write(self, coordinates: Callable[[Expr, Expr], Sequence[Expr]], rows: Expr, block: KeyBlock) -> None:
        """Emit a block of `rows` rows; `coordinates` are those of a score, by row and key of the block."""
        with self.nest.loop("row", rows) as row:
            top = self._enter(row, block, lambda key: coordinates(row, key))
            if self.state is not None:
                self._rise(row, block, self.state, top)
        if self.state is not None:
            with self.nest.loop("row", rows) as row:
                self._grow(row, block, self.state)

    def _rise(self, row: Expr, block: KeyBlock, state: RowState, block_top: Expr) -> None:
        """Emit what becomes of the sums of a row by scores of at most `block_top`."""
        nest, before = self.nest, self._load(state.top, row)
        top, scale = nest.allocate("own_top", (1,)), nest.allocate("own_scale", (self.lanes,))
        nest.store(top, [int64(0)], tirx.max(before, block_top))
        with nest.when(block.is_later):
            with self._vector() as v:
                nest.store(scale, [v], weight_of(before - self._load(top, int64(0))))
            nest.store(state.scale, [row], self._load(scale, int64(0)))
            nest.store(state.total, [row], self._load(state.total, row) * self._load(scale, int64(0)))
        nest.store(state.top, [row], self._load(top, int64(0)))

    @contextmanager
    def _vector(self) -> Iterator[Expr]:
        with self.nest.run("v", self.lanes, ForKind.VECTORIZED) as v:
            yield v

    def _load(self, buffer: Var, at: Expr) -> Expr:
        return tirx.BufferLoad(buffer, [at])

    def _score(self, row: Expr, key: Expr) -> Expr:
        return tirx.BufferLoad(self.scores, [row * self.stride + key])

    def _enter(self, row: Expr, block: KeyBlock, at: Callable[[Expr], Sequence[Expr]]) -> Expr:
        """Emit the epilogue of a row in place, and return its maximum."""
        nest, lanes = self.nest, self.lanes
        whole, rest = tirx.floordiv(block.keys, lanes), tirx.floormod(block.keys, lanes)
        last, least = nest.allocate("last", (lanes,)), nest.allocate("least", (lanes,))
        nest.store(least, [ramp(0, lanes)], splat(tirx.const(LEAST, "float32"), lanes))
        with nest.loop("vector", whole) as vector, self._vector() as v:
            key = vector * lanes + v
            nest.store(self.scores, [row * self.stride + key], self._finished(row, key, at))
            nest.store(least, [v], _larger(self._load(least, v), self._score(row, key)))
        with nest.when(rest > 0):
            first = whole * lanes
            if _may_idle(self.output):
                with nest.masked(rest), self._vector() as v:
                    nest.store(last, [v], self._finished(row, first + v, at))
            else:
                with self._vector() as v:
                    nest.store(last, [v], self._finished(row, tirx.min(first + v, block.keys - 1), at))
            with self._vector() as v:
                nest.store(last, [v], tirx.Select(v < rest, self._load(last, v), _HIDDEN))
                nest.store(least, [v], _larger(self._load(least, v), self._load(last, v)))
            with self._vector() as v:
                nest.store(self.scores, [row * self.stride + first + v], self._load(last, v))
        return fold_lanes(nest, [tirx.BufferLoad(least, [ramp(0, lanes)])], lanes, "float32", _larger)

    def _finished(self, row: Expr, key: Expr, at: Callable[[Expr], Sequence[Expr]]) -> Expr:
        _, value = self.output.at(at(key), self._score(row, key))
        return value

    def _grow(self, row: Expr, block: KeyBlock, state: RowState) -> None:
        """Emit the exponentials of a row, and add their sum to its total."""
        nest, lanes = self.nest, self.lanes
        top, total = nest.allocate("own_top", (1,)), nest.allocate("sum", (lanes,))
        nest.store(top, [int64(0)], self._load(state.top, row))
        nest.store(total, [ramp(0, lanes)], splat(tirx.const(0, "float32"), lanes))
        with nest.loop("vector", block.vectors) as vector, self._vector() as v:
            place = row * self.stride + (vector * lanes + v)
            nest.store(self.scores, [place], weight_of(self._load(self.scores, place) - self._load(top, int64(0))))
            nest.store(total, [v], self._load(total, v) + self._load(self.scores, place))
        whole = fold_lanes(nest, [tirx.BufferLoad(total, [ramp(0, lanes)])], lanes, "float32", tirx.Add)
        nest.store(state.total, [row], self._load(state.total, row) + whole)


def _may_idle(output: Output) -> bool:
    """Return whether keys past the last may be computed of anything: all that is loaded for a vector of them lies some
    elements apart, and no integers are divided by what is loaded or depends on the key."""
    key, analyzer = output.coordinates[-1], Analyzer()
    for load in find(output.value, TensorLoad):
        for index in load.indices:
            step = analyzer.simplify(substitute(index, {key: key + tirx.const(1, "int64")}) - index)
            if uses(step, key) or contains(index, (TensorLoad, lambda load: True)):
                return False

    def is_of_key(division: Expr) -> bool:
        by = division.b
        return "int" in str(by.ty.dtype) and (uses(by, key) or contains(by, (TensorLoad, lambda load: True)))

    return not contains(output.value, (_DIVISIONS, is_of_key))


def _larger(first: Expr, second: Expr) -> Expr:
    """Return the larger of two numbers; the second where one is NaN, which passes through the exponentials."""
    return tirx.Select(first > second, first, second)
