"""What one block of a product does: its tile, the sums of that, and who takes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import Var

from backends.cuda.codegen.device_functions import barrier, call_device
from backends.cuda.devices import WARP
from backends.cuda.kernels.matmul.cores import Side
from backends.cuda.kernels.matmul.plan import Plan
from backends.cuda.kernels.matmul.sums import SumsConsumer
from backends.cuda.kernels.matmul.tile import Begin
from backends.cuda.kernels.registers import register
from backends.tensorir.emit import Nest, guard, int64

Expr = Any


def shared_of(plan: Plan, nest: Nest) -> Var:
    """Declare the shared memory of a block, and return it."""
    shared = tirx.decl_buffer((plan.shared_bytes,), "uint8", "shared", scope="shared.dyn")
    nest.add(tirx.AllocBuffer(shared))
    return shared


@dataclass(frozen=True)
class WarpPlace:
    """A warp's place in the tile of its block, and the sums of a lane."""

    lane: Var
    row: Var
    column: Var
    sums: Var


@dataclass(frozen=True)
class TilePlace:
    """Which tile a block computes: its indices, variables."""

    split: Var
    batch: Var
    row_tile: Var
    column_tile: Var

    @classmethod
    def of(cls, plan: Plan, nest: Nest, block: Expr) -> TilePlace:
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
class BlockWriter:
    """Adds what the threads of one block do.

    Attributes:
        shared: The block's shared memory.
    """

    plan: Plan
    nest: Nest
    place: TilePlace
    thread: Var
    shared: Var

    def warp(self) -> WarpPlace:
        """Return the place of a warp, and its sums."""
        nest, point = self.nest, self.plan.point
        sums = register(nest, "sums", point.warp_rows * point.warp_columns // WARP, "float32")
        lane = nest.bind("lane", tirx.floormod(self.thread, int64(WARP)))
        warp = nest.bind("warp", tirx.floordiv(self.thread, int64(WARP)))
        warps = point.columns // point.warp_columns
        row = nest.bind("warp_row", tirx.floordiv(warp, int64(warps)) * point.warp_rows)
        column = nest.bind("warp_column", tirx.floormod(warp, int64(warps)) * point.warp_columns)
        return WarpPlace(lane, row, column, sums)

    def sum(self, warp: WarpPlace, first: Expr, tiles: Expr) -> None:
        """Add the products of so many tiles of depth, from the first on, of which the sums are left in shared memory.

        Args:
            tiles: A number where it is known.
        """
        nest, point = self.nest, self.plan.point
        zero, stages, is_known = tirx.const(0, "float32"), point.stages, isinstance(tiles, int)
        for at in range(point.warp_rows * point.warp_columns // WARP):
            nest.store(warp.sums, [int64(at)], zero)
        for stage in range(stages - 1):
            if not is_known or stage < tiles:
                with guard(nest, None if is_known else tiles > stage):
                    self._copy(first + stage, int64(stage))
            call_device(nest, "commit_copies")
        with nest.run("step", tiles) as tile:
            call_device(nest, f"wait_copies<{stages - 2}>")
            barrier(nest)
            if not is_known or tiles >= stages:
                with nest.when(tile < tiles - (stages - 1)):
                    self._copy(first + tile + (stages - 1), tirx.floormod(tile + (stages - 1), int64(stages)))
            call_device(nest, "commit_copies")
            left, right = self._sides(tirx.floormod(tile, int64(stages)), warp)
            for depth in range(0, point.depth, self.plan.cores.step):
                self.plan.cores.multiply(nest, warp.sums, left, right, warp.lane, depth=depth)
        call_device(nest, "wait_copies<0>")
        barrier(nest)
        left, right = self._sides(int64(0), warp)
        put = self.plan.sums.put(nest, self.shared, warp.row, warp.column)
        self.plan.cores.store(warp.sums, left, right, warp.lane, put)
        barrier(nest)

    def hand_on(self, results: SumsConsumer) -> None:
        """Add what hands the sums in shared memory to `results`."""
        place, threads = self.place, (self.thread, self.plan.point.threads)
        tiles_at = (place.batch, place.row_tile, place.column_tile)
        self.plan.sums.hand_on(self.nest, self.shared, tiles_at, threads, results)

    def _copy(self, tile: Expr, stage: Expr) -> None:
        """Add the copies of both operands' tile of depth to a stage."""
        plan, place, point = self.plan, self.place, self.plan.point
        depth = self.nest.bind("depth", tile * point.depth)
        is_inside = plan.tiles[2] % point.split == 0
        at = self.nest.bind("at", stage * plan.stage_bytes)
        rows = Begin(place.batch, place.row_tile * point.rows, depth, is_inside)
        columns = Begin(place.batch, place.column_tile * point.columns, depth, is_inside)
        plan.left.copy(self.nest, (self.shared, at), rows, self.thread, point.threads)
        plan.right.copy(self.nest, (self.shared, at + plan.left.bytes), columns, self.thread, point.threads)

    def _sides(self, stage: Expr, warp: WarpPlace) -> tuple[Side, Side]:
        """Return the warp's parts of the tiles of a stage."""
        plan, point = self.plan, self.plan.point
        at = self.nest.bind("at", stage * plan.stage_bytes)
        left = Side(plan.left, self.shared, at, warp.row, point.warp_rows)
        return left, Side(plan.right, self.shared, at + plan.left.bytes, warp.column, point.warp_columns)
