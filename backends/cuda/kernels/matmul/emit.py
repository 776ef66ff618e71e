"""The loops of a product."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from backends.cuda.kernels.launch import bound_loop
from backends.cuda.kernels.matmul.block import BlockWriter, TilePlace, shared_of
from backends.cuda.kernels.matmul.plan import Plan
from backends.cuda.kernels.matmul.sums import SumsConsumer
from backends.tensorir.emit import Nest

Expr = Any


def emit_product(plan: Plan, results: Callable[[Expr], SumsConsumer]) -> tirx.Stmt:
    """Return the loops of a product at one point, bound to blocks and threads; `results` is asked of a split.

    ```
    for block, thread in T.grid(batches * row_tiles * column_tiles * splits, threads):  # blockIdx.x, threadIdx.x
        for stage in unroll(stages - 1):
            copy_async(tile `stage` of left and right); commit_copies()
        for tile in range(tiles):
            wait_copies<stages - 2>(); barrier                # the tile has come, and nobody reads the one before it
            copy_async(tile `tile + stages - 1`, to the place of the one before); commit_copies()
            for step in unroll(depth / 16):
                rows, columns = ldmatrix(left tile), ldmatrix(right tile)
                sums += mma(rows, columns)                    # in registers, those of a warp's tile
        wait_copies<0>(); barrier
        shared = sums                                         # in the place of the tiles
        barrier
        for vector in block's tile, a thread each:
            output[vector] = epilogue(shared[vector], ...)    # accesses of 16 bytes
    ```
    """
    nest, threads = Nest(), plan.point.threads
    with (
        bound_loop(nest, "blockIdx.x", plan.blocks, plan.blocks_of_sm) as block,
        bound_loop(nest, "threadIdx.x", threads) as thread,
    ):
        shared = shared_of(plan, nest)
        writer = BlockWriter(plan, nest, TilePlace.of(plan, nest, block), thread, shared)
        split = writer.place.split
        writer.sum(writer.warp(), split * plan.tiles_of_split, plan.tiles_of_split)
        writer.hand_on(results(split))
    return nest.finish()
