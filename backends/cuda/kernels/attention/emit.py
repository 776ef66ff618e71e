"""The loops of an attention (FlashAttention-2, Dao 2023; Milakov & Gimelshein, "Online normalizer calculation for
softmax", 2018)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import Var
from tvm.tirx import ForKind

from backends.cuda.codegen.device_functions import barrier, call_device
from backends.cuda.devices import WARP
from backends.cuda.kernels.attention.live_tiles import list_live_tiles
from backends.cuda.kernels.attention.logits import logit
from backends.cuda.kernels.attention.plan import FlashPlan
from backends.cuda.kernels.attention.products import WARP_ROWS, size
from backends.cuda.kernels.launch import bound_loop
from backends.cuda.kernels.matmul.cores import Side
from backends.cuda.kernels.matmul.kernels import results_of
from backends.cuda.kernels.matmul.tile import Begin
from backends.cuda.kernels.registers import register
from backends.cuda.kernels.warps import shuffled
from backends.tensorir.emit import Nest, guard, int64
from backends.tensorir.softmax_rows import LEAST, bounded_sum
from fusion.declined import Declined

Expr = Any


def emit_attention(func: tirx.PrimFunc, plan: FlashPlan) -> tirx.PrimFunc:
    """Return `func`, of which `plan` has the attention, with loops bound to blocks and threads.

    ```
    for block, thread in T.grid(batches * row_tiles, threads):                    # blockIdx.x, threadIdx.x
        copy_async(queries); commit_copies()
        # where a mask may leave out all scores of a tile: `tile` is one of a list, see `list_live_tiles`
        for stage in unroll(stages - 1):
            copy_async(tile `stage` of keys and values); commit_copies()
        rows = ldmatrix(queries)                                                  # 16 of a warp stay in registers
        for tile in range(tiles):
            wait_copies<stages - 2>(); barrier
            copy_async(tile `tile + stages - 1`); commit_copies()
            scores = mma(rows, ldmatrix(keys))                                    # float32: multiply-adds
            scores = epilogue(scores)                                             # -inf behind the last key
            new_top = max(top, max(scores)), of four lanes by shuffles
            scores = exp(scores - new_top)
            total = total * exp(top - new_top) + sum(scores)                      # of the lane's own keys
            sums = sums * exp(top - new_top) + mma(scores, ldmatrix(values))      # the scores as they lie in registers;
                                                                                  # float32: through shared memory
        sums = sums / total, of four lanes by shuffles
        shared = sums
        for vector in block's tile, a thread each: output[vector] = epilogue(shared[vector], ...)
    ```

    Without a softmax `top` and `total` are missing, and scores are multiplied as the epilogue makes them, 0 behind the
    last key.

    Raises:
        Declined: The point does not suit the attention, or elementwise stages read scores or sums of another position.
    """
    why_not = plan.why_not()
    if why_not:
        raise Declined(why_not)
    nest, threads = Nest(), plan.point.threads
    with (
        bound_loop(nest, "blockIdx.x", plan.blocks, plan.blocks_of_sm) as block,
        bound_loop(nest, "threadIdx.x", threads) as thread,
    ):
        shared = tirx.decl_buffer((plan.shared_bytes,), "uint8", "shared", scope="shared.dyn")
        nest.add(tirx.AllocBuffer(shared))
        row_tile = nest.bind("row_tile", tirx.floormod(block, int64(plan.row_tiles)))
        batch = nest.bind("batch", tirx.floordiv(block, int64(plan.row_tiles)))
        _Writer.of(plan, nest, (batch, row_tile), thread, shared).add()
    return func.with_body(nest.finish())


@dataclass(frozen=True)
class _Writer:
    """Adds what the threads of one block do.

    Attributes:
        place: The batch, and which of the tiles of its rows.
        warp_row: The first row of the warp in the block's tile.
        shared: The block's shared memory.
        scores: Of the warp's rows and a tile of keys, those of the lane.
        sums: Of the warp's rows and the channels, so too.
        top, total: Maximum and sum of each of the lane's rows; `scale` multiplies what was summed before a tile.
    """

    plan: FlashPlan
    nest: Nest
    place: tuple[Var, Var]
    thread: Var
    shared: Var
    lane: Var
    warp_row: Var
    scores: Var
    sums: Var
    top: Var
    total: Var
    scale: Var

    @classmethod
    def of(cls, plan: FlashPlan, nest: Nest, place: tuple[Var, Var], thread: Var, shared: Var) -> _Writer:
        """Return the writer, its registers declared and begun."""
        lane = nest.bind("lane", tirx.floormod(thread, int64(WARP)))
        sizes = {"scores": size(plan.point.keys), "sums": size(plan.channels)}
        sizes |= dict.fromkeys(("top", "total", "scale"), plan.products.rows if plan.region.is_softmax else 1)
        made = {name: register(nest, name, many, "float32") for name, many in sizes.items()}
        writer = cls(
            plan=plan, nest=nest, place=place, thread=thread, shared=shared, lane=lane,
            warp_row=nest.bind("warp_row", tirx.floordiv(thread, int64(WARP)) * WARP_ROWS), **made,
        )  # fmt: skip
        begun = (("sums", 0.0), ("top", LEAST), ("total", 0.0))
        for buffer, value in begun if plan.region.is_softmax else begun[:1]:
            writer._fill(made[buffer], sizes[buffer], value)
        return writer

    def add(self) -> None:
        """Add all of it."""
        nest, plan, stages = self.nest, self.plan, self.plan.point.stages
        batch, row_tile = self.place
        begin = Begin(batch, row_tile * plan.rows, int64(0), is_inside=True)
        plan.queries.copy(nest, (self.shared, int64(0)), begin, self.thread, plan.point.threads)
        call_device(nest, "commit_copies")
        live = None
        if plan.lists_tiles:
            live = list_live_tiles(nest, plan, self.place, self.shared, thread=self.thread, lane=self.lane)
        for stage in range(stages - 1):
            if stage < plan.key_tiles:
                with guard(nest, int64(stage) < live.many if live else None):
                    self._copy(live.at(nest, int64(stage)) if live else int64(stage), int64(stage))
            call_device(nest, "commit_copies")
        call_device(nest, f"wait_copies<{stages - 1}>")
        barrier(nest)
        queries = Side(plan.queries, self.shared, int64(0), self.warp_row, WARP_ROWS)
        held = plan.products.hold(nest, queries, self.lane, plan.depth)
        with nest.run("number", plan.key_tiles) as number, guard(nest, number < live.many if live else None):
            call_device(nest, f"wait_copies<{stages - 2}>")
            barrier(nest)
            if plan.key_tiles >= stages:
                ahead = number + (stages - 1)
                with nest.when(ahead < (live.many if live else plan.key_tiles)):
                    self._copy(live.at(nest, ahead) if live else ahead, tirx.floormod(ahead, int64(stages)))
            call_device(nest, "commit_copies")
            at = nest.bind("at", self._stage_at(tirx.floormod(number, int64(stages))))
            self._score(held, queries, at, live.at(nest, number) if live else number)
            if plan.region.is_softmax:
                self._weigh()
            values = Side(plan.values, self.shared, at + plan.keys.bytes, int64(0), plan.channels)
            plan.products.sum(nest, self.sums, self.scores, self._weights(), values, self.lane)
        self._finish()

    def _weights(self) -> Side:
        """Return the place of the warp's weights in shared memory."""
        plan = self.plan
        at = tirx.floordiv(self.warp_row, int64(WARP_ROWS)) * plan.weight_bytes + plan.weights_begin
        return Side(plan.weights, self.shared, at, int64(0), WARP_ROWS)

    def _stage_at(self, stage: Expr) -> Expr:
        return stage * self.plan.stage_bytes + self.plan.queries.bytes

    def _copy(self, tile: Expr, stage: Expr) -> None:
        """Add the copies of a tile of keys and values to a stage."""
        nest, plan, (batch, _) = self.nest, self.plan, self.place
        key, at = nest.bind("key", tile * plan.point.keys), nest.bind("at", self._stage_at(stage))
        keys, values = Begin(batch, key, int64(0), is_inside=True), Begin(batch, int64(0), key, is_inside=True)
        plan.keys.copy(nest, (self.shared, at), keys, self.thread, plan.point.threads)
        plan.values.copy(nest, (self.shared, at + plan.keys.bytes), values, self.thread, plan.point.threads)

    def _score(self, held: Sequence[Var], queries: Side, at: Expr, tile: Expr) -> None:
        """Add the scores of a tile of keys."""
        nest, plan = self.nest, self.plan
        self._fill(self.scores, size(plan.point.keys), 0.0)
        keys = Side(plan.keys, self.shared, at, int64(0), plan.point.keys)
        plan.products.score(nest, self.scores, held, queries, keys, self.lane)
        many = plan.region.scores.columns
        with self._each_score() as (slot, _, own_row, column):
            row = self.place[1] * plan.rows + self.warp_row + own_row
            key = nest.bind("key", tile * plan.point.keys + column)
            place = (self.place[0], nest.bind("row", tirx.min(row, int64(plan.region.scores.rows - 1))), key)
            value = logit(plan.region, place, tirx.BufferLoad(self.scores, [slot]))
            if many % plan.point.keys:
                nothing = float("-inf") if plan.region.is_softmax else 0.0
                value = tirx.if_then_else(key < many, value, tirx.const(nothing, "float32"))
            nest.store(self.scores, [slot], value)

    def _weigh(self) -> None:
        """Add what turns scores into weights, and what that changes of the sums before."""
        nest, rows = self.nest, self.plan.products.rows
        new_top = register(nest, "new_top", rows, "float32")
        with self._rows() as row:
            nest.store(new_top, [row], tirx.BufferLoad(self.top, [row]))
        with self._each_score() as (slot, row, *_):
            largest = tirx.max(tirx.BufferLoad(new_top, [row]), tirx.BufferLoad(self.scores, [slot]))
            nest.store(new_top, [row], largest)
        with self._rows() as row:
            top, new = tirx.BufferLoad(self.top, [row]), tirx.BufferLoad(new_top, [row])
            for distance in self.plan.products.distances:
                nest.store(new_top, [row], tirx.max(new, shuffled(new, distance)))
            nest.store(self.scale, [row], tirx.exp(top - new))
            nest.store(self.top, [row], new)
            scaled = tirx.BufferLoad(self.total, [row]) * tirx.BufferLoad(self.scale, [row])
            nest.store(self.total, [row], scaled)
        with self._each_score() as (slot, row, *_):
            score = tirx.BufferLoad(self.scores, [slot])
            nest.store(self.scores, [slot], tirx.exp(score - tirx.BufferLoad(self.top, [row])))
            nest.store(self.total, [row], tirx.BufferLoad(self.total, [row]) + score)
        with self._each_sum() as (slot, row):
            nest.store(self.sums, [slot], tirx.BufferLoad(self.sums, [slot]) * tirx.BufferLoad(self.scale, [row]))

    def _finish(self) -> None:
        """Add what makes the results."""
        nest, plan = self.nest, self.plan
        if plan.region.is_softmax:
            self._divide()
        call_device(nest, "wait_copies<0>")
        barrier(nest)
        columns = Side(plan.values, self.shared, int64(0), int64(0), plan.channels)
        put = plan.sums.put(nest, self.shared, self.warp_row, int64(0))
        plan.cores.store(self.sums, self._weights(), columns, self.lane, put)
        barrier(nest)
        region = plan.region
        results = results_of(region.epilogue, region.sums, region.channels)
        place = (*self.place, int64(0))
        plan.sums.hand_on(nest, self.shared, place, (self.thread, plan.point.threads), results)

    def _divide(self) -> None:
        """Add the division by the totals."""
        nest, plan = self.nest, self.plan
        with self._rows() as row:
            total = tirx.BufferLoad(self.total, [row])
            for distance in plan.products.distances:
                nest.store(self.total, [row], total + shuffled(total, distance))
        with self._each_sum() as (slot, row):
            total = tirx.BufferLoad(self.total, [row])
            whole = bounded_sum(total) if plan.region.is_bounded else total
            nest.store(self.sums, [slot], tirx.BufferLoad(self.sums, [slot]) / whole)

    def _fill(self, buffer: Var, many: int, value: float) -> None:
        with self.nest.run("slot", many, ForKind.UNROLLED) as slot:
            self.nest.store(buffer, [slot], tirx.const(value, "float32"))

    @contextmanager
    def _rows(self) -> Iterator[Var]:
        """Open a loop over the lane's rows."""
        with self.nest.run("row", self.plan.products.rows, ForKind.UNROLLED) as row:
            yield row

    @contextmanager
    def _each_score(self) -> Iterator[tuple[Var, Expr, Expr, Expr]]:
        """Open a loop over the lane's scores: which, in which of its rows, and in which row and column of the warp."""
        keys = self.plan.point.keys
        with self.nest.run("slot", size(keys), ForKind.UNROLLED) as slot:
            yield slot, *self.plan.products.place(slot, self.lane, keys)

    @contextmanager
    def _each_sum(self) -> Iterator[tuple[Var, Expr]]:
        """Open a loop over the lane's sums: which, and in which of its rows."""
        channels = self.plan.channels
        with self.nest.run("slot", size(channels), ForKind.UNROLLED) as slot:
            yield slot, self.plan.products.place(slot, self.lane, channels)[0]
