"""The loops of an attention (FlashAttention-2, Dao 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import Var

from backends.cuda.codegen.device_functions import barrier, call_device
from backends.cuda.devices import WARP
from backends.cuda.kernels.attention.live_tiles import list_live_tiles
from backends.cuda.kernels.attention.logits import logit
from backends.cuda.kernels.attention.online_softmax import OnlineSoftmax
from backends.cuda.kernels.attention.plan import FlashPlan
from backends.cuda.kernels.attention.products import WARP_ROWS
from backends.cuda.kernels.launch import bound_loop
from backends.cuda.kernels.matmul.cores import Side
from backends.cuda.kernels.matmul.kernels import results_of
from backends.cuda.kernels.matmul.tile import Begin
from backends.tensorir.emit import Nest, guard, int64
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
        softmax: What its lane has of scores, weights and sums.
    """

    plan: FlashPlan
    nest: Nest
    place: tuple[Var, Var]
    thread: Var
    shared: Var
    lane: Var
    warp_row: Var
    softmax: OnlineSoftmax

    @classmethod
    def of(cls, plan: FlashPlan, nest: Nest, place: tuple[Var, Var], thread: Var, shared: Var) -> _Writer:
        """Return the writer, its registers declared and begun."""
        lane = nest.bind("lane", tirx.floormod(thread, int64(WARP)))
        softmax = OnlineSoftmax.of(plan, nest, lane)
        warp_row = nest.bind("warp_row", tirx.floordiv(thread, int64(WARP)) * WARP_ROWS)
        softmax.begin()
        return cls(plan, nest, place, thread, shared, lane=lane, warp_row=warp_row, softmax=softmax)

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
                self.softmax.weigh()
            values = Side(plan.values, self.shared, at + plan.keys.bytes, int64(0), plan.channels)
            plan.products.sum(nest, self.softmax.sums, self.softmax.scores, self._weights(), values, self.lane)
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
        self.softmax.clear_scores()
        keys = Side(plan.keys, self.shared, at, int64(0), plan.point.keys)
        plan.products.score(nest, self.softmax.scores, held, queries, keys, self.lane)
        many = plan.region.scores.columns
        with self.softmax.each_score() as (slot, _, own_row, column):
            row = self.place[1] * plan.rows + self.warp_row + own_row
            key = nest.bind("key", tile * plan.point.keys + column)
            place = (self.place[0], nest.bind("row", tirx.min(row, int64(plan.region.scores.rows - 1))), key)
            value = logit(plan.region, place, tirx.BufferLoad(self.softmax.scores, [slot]))
            if many % plan.point.keys:
                nothing = float("-inf") if plan.region.is_softmax else 0.0
                value = tirx.if_then_else(key < many, value, tirx.const(nothing, "float32"))
            nest.store(self.softmax.scores, [slot], value)

    def _finish(self) -> None:
        """Add what makes the results."""
        nest, plan = self.nest, self.plan
        if plan.region.is_softmax:
            self.softmax.divide()
        call_device(nest, "wait_copies<0>")
        barrier(nest)
        columns = Side(plan.values, self.shared, int64(0), int64(0), plan.channels)
        put = plan.sums.put(nest, self.shared, self.warp_row, int64(0))
        plan.cores.store(self.softmax.sums, self._weights(), columns, self.lane, put)
        barrier(nest)
        region = plan.region
        results = results_of(region.epilogue, region.sums, region.channels)
        place = (*self.place, int64(0))
        plan.sums.hand_on(nest, self.shared, place, (self.thread, plan.point.threads), results)
