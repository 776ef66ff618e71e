"""What stands between the products for a block of rows and keys whose sizes only a call knows: an epilogue of the
first, and a softmax in the online form of `softmax`, or none.

    for row
      scores = epilogue(scores)                        whole vectors; the last one ends where the keys do
      scores behind the last key = -inf                up to a whole vector
      block_top = max over scores
    new_top = max(top, block_top); scale = exp(top - new_top); top = new_top         vectors of rows
    for row
      scores = exp(scores - top)
      block_total = sum over scores
    total = total * scale + block_total                                              vectors of rows
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields

from tvm import tirx
from tvm.ir import Var
from tvm.tirx import ForKind

from backends.cpu.kernels.attention.softmax import weight_of
from backends.tensorir.emit import Expr, Nest, int64, ramp, splat
from backends.tensorir.roles import Output
from backends.tensorir.softmax_rows import LEAST
from backends.tensorir.vectors import fold_lanes

_HIDDEN = tirx.const(float("-inf"), "float32")


@dataclass(frozen=True)
class RowState:
    """What a block of rows keeps, one number a row.

    Attributes:
        top, total: Maximum and sum of the keys so far.
        block_top, block_total: Those of a block of keys.
        scale: What multiplies all that was summed before.
    """

    top: Var
    total: Var
    block_top: Var
    block_total: Var
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
        start = {self.state.top: LEAST, self.state.total: 0.0, self.state.block_top: LEAST, self.state.block_total: 0.0}
        for buffer, value in start.items():
            for at in range(0, self.rows, self.lanes):
                self.nest.store(buffer, [ramp(at, self.lanes)], splat(tirx.const(value, "float32"), self.lanes))

    def write(self, coordinates: Callable[[Expr, Expr], Sequence[Expr]], rows: Expr, block: KeyBlock) -> None:
        """Emit a block of `rows` rows; `coordinates` are those of a score, by row and key of the block."""
        with self.nest.loop("row", rows) as row:
            self._enter(row, block, lambda key: coordinates(row, key))
        if self.state is not None:
            self._softmax(rows, block, self.state)

    def _softmax(self, rows: Expr, block: KeyBlock, state: RowState) -> None:
        with self._of_rows() as at:
            new_top = tirx.max(self._load(state.top, at), self._load(state.block_top, at))
            self.nest.store(state.block_top, [at], new_top)
        with self._of_rows() as at:
            self.nest.store(state.scale, [at], weight_of(self._load(state.top, at) - self._load(state.block_top, at)))
        with self._of_rows() as at:
            self.nest.store(state.top, [at], self._load(state.block_top, at))
        with self.nest.loop("row", rows) as row:
            self._grow(row, block, state)
        with self._of_rows() as at:
            total = self._load(state.total, at) * self._load(state.scale, at) + self._load(state.block_total, at)
            self.nest.store(state.total, [at], total)

    @contextmanager
    def _of_rows(self) -> Iterator[Expr]:
        """Open a vectorised loop over the rows."""
        with self.nest.loop("rows", self.rows // self.lanes) as part, self._vector() as v:
            yield part * self.lanes + v

    @contextmanager
    def _vector(self) -> Iterator[Expr]:
        with self.nest.run("v", self.lanes, ForKind.VECTORIZED) as v:
            yield v

    def _load(self, buffer: Var, at: Expr) -> Expr:
        return tirx.BufferLoad(buffer, [at])

    def _score(self, row: Expr, key: Expr) -> Expr:
        return tirx.BufferLoad(self.scores, [row * self.stride + key])

    def _enter(self, row: Expr, block: KeyBlock, at: Callable[[Expr], Sequence[Expr]]) -> None:
        """Emit the epilogue of a row in place, and its maximum: the last vector, which shares keys with the one before,
        is read first and stored last."""
        nest, lanes = self.nest, self.lanes
        whole, rest = tirx.floordiv(block.keys, lanes), tirx.floormod(block.keys, lanes)
        last, least = nest.allocate("last", (lanes,)), nest.allocate("least", (lanes,))
        nest.store(least, [ramp(0, lanes)], splat(tirx.const(LEAST, "float32"), lanes))
        with nest.when(tirx.all(rest > 0, whole > 0)), self._vector() as v:
            nest.store(last, [v], self._finished(row, block.keys - lanes + v, at))
            nest.store(least, [v], _larger(self._load(least, v), self._load(last, v)))
        with nest.loop("vector", whole) as vector, self._vector() as v:
            key = vector * lanes + v
            nest.store(self.scores, [row * self.stride + key], self._finished(row, key, at))
            nest.store(least, [v], _larger(self._load(least, v), self._score(row, key)))
        with nest.when(rest > 0):
            with nest.when(whole > 0):
                with self._vector() as v:
                    nest.store(self.scores, [row * self.stride + (block.keys - lanes) + v], self._load(last, v))
                hidden = splat(_HIDDEN, lanes)
                nest.store(self.scores, [ramp(row * self.stride + block.keys, lanes)], hidden)
            with nest.when(whole.equal(0)), self._vector() as v:
                only = self._finished(row, tirx.min(v, block.keys - 1), at)
                nest.store(self.scores, [row * self.stride + v], tirx.Select(v < block.keys, only, _HIDDEN))
                nest.store(least, [v], _larger(self._load(least, v), self._score(row, v)))
        if self.state is not None:
            top = fold_lanes(nest, [tirx.BufferLoad(least, [ramp(0, lanes)])], lanes, "float32", _larger)
            nest.store(self.state.block_top, [row], top)

    def _finished(self, row: Expr, key: Expr, at: Callable[[Expr], Sequence[Expr]]) -> Expr:
        _, value = self.output.at(at(key), self._score(row, key))
        return value

    def _grow(self, row: Expr, block: KeyBlock, state: RowState) -> None:
        """Emit the exponentials of a row, and their sum."""
        nest, lanes = self.nest, self.lanes
        top = nest.allocate("own_top", (1,))
        nest.store(top, [int64(0)], self._load(state.top, row))
        total = nest.allocate("sum", (lanes,))
        nest.store(total, [ramp(0, lanes)], splat(tirx.const(0, "float32"), lanes))
        with nest.loop("vector", block.vectors) as vector, self._vector() as v:
            place = row * self.stride + (vector * lanes + v)
            nest.store(self.scores, [place], weight_of(self._load(self.scores, place) - self._load(top, int64(0))))
            nest.store(total, [v], self._load(total, v) + self._load(self.scores, place))
        whole = fold_lanes(nest, [tirx.BufferLoad(total, [ramp(0, lanes)])], lanes, "float32", tirx.Add)
        nest.store(state.block_total, [row], whole)


def _larger(first: Expr, second: Expr) -> Expr:
    """Return the larger of two numbers; the second where one is NaN, which passes through the exponentials."""
    return tirx.Select(first > second, first, second)
