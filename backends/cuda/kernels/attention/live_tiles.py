"""Which tiles of keys a block looks at: those of which a mask leaves it a score. Of a causal mask that is half."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import Var
from tvm.tirx import ForKind

from backends.cuda.codegen.device_functions import address, barrier, call_device, registers
from backends.cuda.devices import WARP
from backends.cuda.kernels.attention.logits import left_out
from backends.cuda.kernels.attention.plan import WORD_BYTES, FlashPlan
from backends.cuda.kernels.attention.products import WARP_ROWS
from backends.cuda.kernels.registers import register
from backends.tensorir.emit import Nest, guard, int64
from backends.tensorir.inlining import uses

Expr = Any


@dataclass(frozen=True)
class LiveTiles:
    """The list of a block's tiles in shared memory.

    Attributes:
        many: How many there are.
    """

    plan: FlashPlan
    shared: Var
    many: Expr

    def at(self, nest: Nest, number: Expr) -> Expr:
        """Return one of them."""
        tile = register(nest, "live_tile", 1, "uint32")
        call_device(nest, "take_word", *registers(tile, 0), address(self.shared, _listed(self.plan, number)))
        return nest.bind("tile", tirx.Cast("int64", tirx.BufferLoad(tile, [int64(0)])))


def list_live_tiles(
    nest: Nest, plan: FlashPlan, place: tuple[Var, Var], shared: Var, *, thread: Var, lane: Var
) -> LiveTiles:
    """Add what lists the tiles of which not all scores of the block's rows are left out; all threads call it.

    ```
    for turn in range(ceil(tiles / warps)):                                      # a tile for each warp
        tile = turn * warps + thread // 32
        live = 0
        for step in range(warps):                                                # 16 rows at a time, the last first
            if not live:
                for row, key in unroll(16, keys / 32): live |= not left_out(row, tile * keys + key * 32 + lane)
                live = any_lane(live)
        if lane == 0: flags[tile] = live
    barrier
    many = 0
    for tile in range(tiles):
        if flags[tile]: listed[many] = tile; many += 1                           # the first thread stores
    barrier
    ```

    Args:
        place: The batch, and which of the tiles of its rows the block has.
    """
    live, warps = register(nest, "live", 1, "uint32"), plan.point.warps
    with nest.run("turn", -(-plan.key_tiles // warps)) as turn:
        tile = nest.bind("tile", turn * warps + tirx.floordiv(thread, int64(WARP)))
        with guard(nest, tile < plan.key_tiles if plan.key_tiles % warps else None):
            _look(nest, plan, place, live, tile=tile, lane=lane)
            with nest.when(lane.equal(int64(0))):
                call_device(nest, "put_word", address(shared, _flagged(plan, tile)), *registers(live, 0))
    barrier(nest)
    many, flag = register(nest, "many", 1, "int64"), register(nest, "flag", 2, "uint32")
    nest.store(many, [int64(0)], int64(0))
    counted = tirx.BufferLoad(many, [int64(0)])
    with nest.run("tile", plan.key_tiles) as tile:
        call_device(nest, "take_word", *registers(flag, 0), address(shared, _flagged(plan, tile)))
        with nest.when(tirx.BufferLoad(flag, [int64(0)]) != tirx.const(0, "uint32")):
            with nest.when(thread.equal(int64(0))):
                nest.store(flag, [int64(1)], tirx.Cast("uint32", tile))
                call_device(nest, "put_word", address(shared, _listed(plan, counted)), *registers(flag, 1))
            nest.store(many, [int64(0)], counted + 1)
    barrier(nest)
    return LiveTiles(plan, shared, counted)


def _look(nest: Nest, plan: FlashPlan, place: tuple[Var, Var], live: Var, *, tile: Var, lane: Var) -> None:
    """Add what sets `live` where a tile has a score that is not left out."""
    scores, keys, (batch, row_tile) = plan.region.scores, plan.point.keys, place
    some = _is_out(plan, (batch, Var("row", "int64"), Var("key", "int64")))
    steps, rows = (plan.point.warps, WARP_ROWS) if some[1] else (1, 1)
    nest.store(live, [int64(0)], tirx.const(0, "uint32"))
    found = tirx.BufferLoad(live, [int64(0)])
    with nest.run("step", steps) as step, nest.when(found.equal(tirx.const(0, "uint32"))):
        with (
            nest.run("own_row", rows, ForKind.UNROLLED) as own_row,
            nest.run("part", keys // WARP, ForKind.UNROLLED) as part,
        ):
            last = (row_tile + 1) * plan.rows - 1
            row = nest.bind("row", tirx.min(last - step * rows - own_row, int64(scores.rows - 1)))
            key = nest.bind("key", tile * keys + part * WARP + lane)
            is_out, _ = _is_out(plan, (batch, row, key))
            if scores.columns % keys:
                is_out = tirx.if_then_else(key < scores.columns, is_out, tirx.const(1, "bool"))
            nest.store(live, [int64(0)], tirx.Select(is_out, found, tirx.const(1, "uint32")))
        call_device(nest, "any_lane", *registers(live, 0))


def _is_out(plan: FlashPlan, place: Sequence[Var]) -> tuple[Expr, bool]:
    """Return whether a score is left out, and whether that differs among rows."""
    found = left_out(plan.region, place)
    assert found is not None
    return found, uses(found, place[1])


def _flagged(plan: FlashPlan, tile: Expr) -> Expr:
    return plan.list_begin + tile * WORD_BYTES


def _listed(plan: FlashPlan, number: Expr) -> Expr:
    return plan.list_begin + (number + plan.key_tiles) * WORD_BYTES
