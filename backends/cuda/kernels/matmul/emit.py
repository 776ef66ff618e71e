"""The loops of a product."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
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
from backends.tensorir.emit import Nest, guard, int64

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
        shared = _shared(plan, nest)
        _Writer(plan, nest, _Place.of(plan, nest, block), thread, shared).add(results)
    return nest.finish()


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
        shared = _shared(plan, nest)
        _Writer(plan, nest, _Place.of(plan, nest, int64(0)), thread, shared).add_stream(block, partial, results)
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
            place = _Place.of(plan, nest, tile)
            behind = nest.bind("behind", stream.block_of(first_step + (stream.of_tile - 1)) + 1)

            def take(sums: Var, row: Expr, column: Expr) -> None:
                for lane in range(results.many):
                    nest.store(sums, [int64(lane)], tirx.const(0, "float32"))
                at, own = (row, column), (partial, kept_at(plan, block, tirx.const(True, "bool")))
                plan.sums.add_kept(nest, sums, results.many, own, place=at)
                with nest.run("later", behind - second) as later:
                    kept = (partial, kept_at(plan, second + later, tirx.const(False, "bool")))
                    plan.sums.add_kept(nest, sums, results.many, kept, place=at)

            tiles_at = (place.batch, place.row_tile, place.column_tile)
            plan.sums.finish(nest, take, tiles_at, (thread, threads), results=results)
    return nest.finish()


def _shared(plan: Plan, nest: Nest) -> Var:
    shared = tirx.decl_buffer((plan.shared_bytes,), "uint8", "shared", scope="shared.dyn")
    nest.add(tirx.AllocBuffer(shared))
    return shared


@dataclass(frozen=True)
class _Warp:
    """A warp's place in the tile of its block, and the sums of a lane."""

    lane: Var
    row: Var
    column: Var
    sums: Var


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
        """Add one tile, or a split of one."""
        warp = self._warp()
        first = self.place.split * self.plan.tiles_of_split
        self._sum(warp, first, self.plan.tiles_of_split)
        self._hand_on(results(self.place.split))

    def add_stream(self, block: Var, partial: Var, results: SumsConsumer) -> None:
        """Add the block's share of all steps, tile by tile: results where it has all of one, otherwise its sums go to
        `partial`."""
        nest, stream, point, warp = self.nest, self.plan.stream, self.plan.point, self._warp()
        begin = nest.bind("begin", stream.begin(block))
        end = nest.bind("end", stream.begin(block + 1))
        first = nest.bind("first", tirx.floordiv(begin, int64(stream.of_tile)))
        behind = tirx.floordiv(end - 1, int64(stream.of_tile)) + 1
        with nest.run("number", behind - first) as number:
            tile = nest.bind("tile", first + number)
            before = nest.bind("before", tirx.max(begin - tile * stream.of_tile, int64(0)))
            many = nest.bind("many", tirx.min(end - tile * stream.of_tile, int64(stream.of_tile)) - before)
            own = replace(self, place=_Place.of(self.plan, nest, tile))
            barrier(nest)  # the sums of the tile before lie where the next one goes
            own._sum(warp, before, many)
            with nest.when(many.equal(int64(stream.of_tile))):
                own._hand_on(results)
            with nest.when(many < stream.of_tile):
                at = kept_at(self.plan, block, before.equal(int64(0)))
                self.plan.sums.keep(nest, self.shared, (self.thread, point.threads), (partial, at))

    def _warp(self) -> _Warp:
        """Return the place of a warp, and its sums."""
        nest, point = self.nest, self.plan.point
        sums = register(nest, "sums", point.warp_rows * point.warp_columns // WARP, "float32")
        lane = nest.bind("lane", tirx.floormod(self.thread, int64(WARP)))
        warp = nest.bind("warp", tirx.floordiv(self.thread, int64(WARP)))
        warps = point.columns // point.warp_columns
        row = nest.bind("warp_row", tirx.floordiv(warp, int64(warps)) * point.warp_rows)
        column = nest.bind("warp_column", tirx.floormod(warp, int64(warps)) * point.warp_columns)
        return _Warp(lane, row, column, sums)

    def _sum(self, warp: _Warp, first: Expr, tiles: Expr) -> None:
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

    def _hand_on(self, results: SumsConsumer) -> None:
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

    def _sides(self, stage: Expr, warp: _Warp) -> tuple[Side, Side]:
        """Return the warp's parts of the tiles of a stage."""
        plan, point = self.plan, self.plan.point
        at = self.nest.bind("at", stage * plan.stage_bytes)
        left = Side(plan.left, self.shared, at, warp.row, point.warp_rows)
        return left, Side(plan.right, self.shared, at + plan.left.bytes, warp.column, point.warp_columns)


def kept_at(plan: Plan, block: Expr, is_begun: Expr) -> Expr:
    """Return where the sums of a part of a tile are kept, of which a block has two at most: the end of its first one,
    and the begin of its last."""
    return (block * 2 + tirx.Select(is_begun, int64(1), int64(0))) * (plan.point.rows * plan.point.columns)
