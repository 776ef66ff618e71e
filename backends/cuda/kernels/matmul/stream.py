"""The loops of a product whose blocks share all steps of all tiles: stream-K (Osama et al. 2023)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tvm import tirx
from tvm.ir import Var

from backends.cuda.codegen.device_functions import barrier
from backends.cuda.kernels.launch import bound_loop
from backends.cuda.kernels.matmul.block import BlockWriter, TilePlace, shared_of
from backends.cuda.kernels.matmul.plan import Plan
from backends.cuda.kernels.matmul.sums import SumsConsumer
from backends.tensorir.emit import Nest, int64

Expr = Any


def emit_stream(plan: Plan, partial: Var, results: SumsConsumer) -> tuple[tirx.Stmt, tirx.Stmt]:
    """Return the loops of a product whose blocks share all steps, and those that add up the tiles which several have.

    ```
    for block, thread in T.grid(blocks, threads):                    # as many as the device holds at once
        for tile in range(begin(block) // of_tile, ceil(begin(block + 1) / of_tile)):
            sums of its steps, as in `emit_product`
            if all of the tile's: output = epilogue(sums)
            else: partial[block, begins with the tile] = sums
    for block, thread in T.grid(blocks - 1, threads):                # one begin of a share each
        if it is the first inside of a tile:
            output = epilogue(partial[block, 1] + partial[block + 1, 0] + ...)
    ```
    """
    nest, threads = Nest(), plan.point.threads
    with (
        bound_loop(nest, "blockIdx.x", plan.blocks, plan.blocks_of_sm) as block,
        bound_loop(nest, "threadIdx.x", threads) as thread,
    ):
        shared = shared_of(plan, nest)
        writer = BlockWriter(plan, nest, TilePlace.of(plan, nest, int64(0)), thread, shared)
        _add_share(writer, block, partial, results)
    return nest.finish(), _emit_totals(plan, partial, results)


def _emit_totals(plan: Plan, partial: Var, results: SumsConsumer) -> tirx.Stmt:
    nest, threads, stream = Nest(), plan.point.threads, plan.stream
    with bound_loop(nest, "blockIdx.x", plan.blocks - 1) as block, bound_loop(nest, "threadIdx.x", threads) as thread:
        second = nest.bind("second", block + 1)
        begin = nest.bind("begin", stream.begin(second))
        tile = nest.bind("tile", tirx.floordiv(begin, int64(stream.of_tile)))
        first_step = tile * stream.of_tile
        is_first = tirx.And(begin > first_step, stream.begin(block) <= first_step)
        with nest.when(is_first):
            place = TilePlace.of(plan, nest, tile)
            behind = nest.bind("behind", stream.block_of(first_step + (stream.of_tile - 1)) + 1)

            def take(sums: Var, row: Expr, column: Expr) -> None:
                for lane in range(results.many):
                    nest.store(sums, [int64(lane)], tirx.const(0, "float32"))
                at, own = (row, column), (partial, _kept_at(plan, block, tirx.const(True, "bool")))
                plan.sums.add_kept(nest, sums, results.many, own, place=at)
                with nest.run("later", behind - second) as later:
                    kept = (partial, _kept_at(plan, second + later, tirx.const(False, "bool")))
                    plan.sums.add_kept(nest, sums, results.many, kept, place=at)

            tiles_at = (place.batch, place.row_tile, place.column_tile)
            plan.sums.finish(nest, take, tiles_at, (thread, threads), results=results)
    return nest.finish()


def _add_share(writer: BlockWriter, block: Var, partial: Var, results: SumsConsumer) -> None:
    """Add the block's share of all steps, tile by tile: results where it has all of one, otherwise its sums go to
    `partial`."""
    plan = writer.plan
    nest, stream, point, warp = writer.nest, plan.stream, plan.point, writer.warp()
    begin = nest.bind("begin", stream.begin(block))
    end = nest.bind("end", stream.begin(block + 1))
    first = nest.bind("first", tirx.floordiv(begin, int64(stream.of_tile)))
    behind = tirx.floordiv(end - 1, int64(stream.of_tile)) + 1
    with nest.run("number", behind - first) as number:
        tile = nest.bind("tile", first + number)
        before = nest.bind("before", tirx.max(begin - tile * stream.of_tile, int64(0)))
        many = nest.bind("many", tirx.min(end - tile * stream.of_tile, int64(stream.of_tile)) - before)
        own = replace(writer, place=TilePlace.of(plan, nest, tile))
        barrier(nest)  # the sums of the tile before lie where the next one goes
        own.sum(warp, before, many)
        with nest.when(many.equal(int64(stream.of_tile))):
            own.hand_on(results)
        with nest.when(many < stream.of_tile):
            at = _kept_at(plan, block, before.equal(int64(0)))
            plan.sums.keep(nest, writer.shared, (writer.thread, point.threads), (partial, at))


def _kept_at(plan: Plan, block: Expr, is_begun: Expr) -> Expr:
    """Return where the sums of a part of a tile are kept, of which a block has two at most: the end of its first one,
    and the begin of its last."""
    return (block * 2 + tirx.Select(is_begun, int64(1), int64(0))) * (plan.point.rows * plan.point.columns)
