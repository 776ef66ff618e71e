"""The loops of a product."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import Var

from backends.cuda.codegen.device_functions import barrier, call_device
from backends.cuda.devices import WARP
from backends.cuda.kernels.launch import bound_loop
from backends.cuda.kernels.matmul.cores import Side
from backends.cuda.kernels.matmul.plan import Plan
from backends.cuda.kernels.matmul.sums import SumsConsumer
from backends.cuda.kernels.matmul.tile import Begin
from backends.cuda.kernels.registers import register
from backends.tensorir.emit import Nest, int64

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
    with bound_loop(nest, "blockIdx.x", plan.blocks) as block, bound_loop(nest, "threadIdx.x", threads) as thread:
        shared = tirx.decl_buffer((plan.shared_bytes,), "uint8", "shared", scope="shared.dyn")
        nest.add(tirx.AllocBuffer(shared))
        _Writer(plan, nest, _Place.of(plan, nest, block), thread, shared).add(results)
    return nest.finish()


@dataclass(frozen=True)
class _Place:
    """Which tile a block computes: its indices, variables."""

    split: Var
    batch: Var
    row_tile: Var
    column_tile: Var

    @classmethod
    def of(cls, plan: Plan, nest: Nest, block: Expr) -> _Place:
        """Blocks that follow each other have the same rows of the left operand, which the L2 cache keeps."""
        names = {
            "column_tile": plan.tiles[1], "row_tile": plan.tiles[0], "batch": plan.product.batches,
            "split": plan.point.split,
        }  # fmt: skip
        found = {}
        for name, extent in names.items():
            found[name] = nest.bind(name, tirx.floormod(block, int64(extent)))
            block = tirx.floordiv(block, int64(extent))
        return cls(**found)


@dataclass(frozen=True)
class _Writer:
    """Adds what the threads of one block do.

    Attributes:
        shared: The block's shared memory.
    """

    plan: Plan
    nest: Nest
    place: _Place
    thread: Var
    shared: Var

    def add(self, results: Callable[[Expr], SumsConsumer]) -> None:
        """Add all of it."""
        nest, point = self.nest, self.plan.point
        sums = register(nest, "sums", point.warp_rows * point.warp_columns // WARP, "float32")
        zero = tirx.const(0, "float32")
        for at in range(point.warp_rows * point.warp_columns // WARP):
            nest.store(sums, [int64(at)], zero)
        lane = nest.bind("lane", tirx.floormod(self.thread, int64(WARP)))
        warp = nest.bind("warp", tirx.floordiv(self.thread, int64(WARP)))
        warps = point.columns // point.warp_columns
        row = nest.bind("warp_row", tirx.floordiv(warp, int64(warps)) * point.warp_rows)
        column = nest.bind("warp_column", tirx.floormod(warp, int64(warps)) * point.warp_columns)
        tiles, stages = self.plan.tiles_of_split, point.stages
        for stage in range(stages - 1):
            if stage < tiles:
                self._copy(int64(stage), int64(stage))
            call_device(nest, "commit_copies")
        with nest.run("tile", tiles) as tile:
            call_device(nest, f"wait_copies<{stages - 2}>")
            barrier(nest)
            if tiles >= stages:
                with nest.when(tile < tiles - (stages - 1)):
                    self._copy(tile + (stages - 1), tirx.floormod(tile + (stages - 1), int64(stages)))
            call_device(nest, "commit_copies")
            left, right = self._sides(tirx.floormod(tile, int64(stages)), row, column)
            for depth in range(0, point.depth, self.plan.cores.step):
                self.plan.cores.multiply(nest, sums, left, right, lane, depth=depth)
        call_device(nest, "wait_copies<0>")
        barrier(nest)
        left, right = self._sides(int64(0), row, column)
        tile, place = self.plan.sums, self.place
        self.plan.cores.store(sums, left, right, lane, tile.put(nest, self.shared, row, column))
        barrier(nest)
        tiles_at = (place.batch, place.row_tile, place.column_tile)
        tile.hand_on(nest, self.shared, tiles_at, (self.thread, point.threads), results(place.split))

    def _copy(self, tile: Expr, stage: Expr) -> None:
        """Add the copies of both operands' tile, which the split counts, to a stage."""
        plan, place, point = self.plan, self.place, self.plan.point
        depth = self.nest.bind("begin", (place.split * plan.tiles_of_split + tile) * point.depth)
        is_inside = plan.tiles[2] % point.split == 0
        at = self.nest.bind("at", stage * plan.stage_bytes)
        rows = Begin(place.batch, place.row_tile * point.rows, depth, is_inside)
        columns = Begin(place.batch, place.column_tile * point.columns, depth, is_inside)
        plan.left.copy(self.nest, (self.shared, at), rows, self.thread, point.threads)
        plan.right.copy(self.nest, (self.shared, at + plan.left.bytes), columns, self.thread, point.threads)

    def _sides(self, stage: Expr, row: Expr, column: Expr) -> tuple[Side, Side]:
        """Return the warp's parts of the tiles of a stage."""
        plan, point = self.plan, self.plan.point
        at = self.nest.bind("at", stage * plan.stage_bytes)
        left = Side(plan.left, self.shared, at, row, point.warp_rows)
        return left, Side(plan.right, self.shared, at + plan.left.bytes, column, point.warp_columns)
