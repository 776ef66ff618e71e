"""The loops of a convolution in groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from tvm import tirx
from tvm.ir import Var
from tvm.tirx import ForKind

from backends.cuda.codegen.device_functions import address, barrier, call_device, registers
from backends.cuda.kernels.launch import bound_loop
from backends.cuda.kernels.reductions.groups.read import Along
from backends.cuda.kernels.reductions.groups.tile import GroupTile
from backends.cuda.kernels.registers import ACCESS_BYTES, Lanes, copy_lanes, register
from backends.cuda.kernels.runs import start_whole
from backends.tensorir.accesses import unravel
from backends.tensorir.emit import Expr, Nest, guard, int64
from backends.tensorir.flat_buffers import load_flat
from backends.tensorir.stages import dtype_of, shape_of

Store = Callable[[Nest, Expr, Lanes, Var], None]
"""Adds what stores neighbouring sums: their position, their lanes, and registers."""
_UNROLLED = 2
"""Turns of the depth that are written out, where there are no more."""


def emit_groups(tile: GroupTile, store: Store) -> tirx.Stmt:
    """Return the loops, bound to blocks and threads.

    ```
    for block, thread in T.grid(images * row_tiles * column_tiles * parts, threads):
        start_run(held, weights, ...)                             # where rows of them would begin inside of sectors
        for turn in ...: bring_vector(patch, image, ...)          # pixels under the windows, zeros outside
        barrier
        pixel, vector = divmod(thread, threads of a pixel)
        for ry, rx, rc in T.grid(3, 3, depth / 4):
            a0[0:4], a1[0:4] = patch[...], patch[...]             # 4 channels of each of the thread's pixels
            for k in T.unroll(4):
                w[0:4] = weights[ry, rx, rc * 4 + k, o : o + 4]
                for lane in T.unroll(4): sums0[lane] += a0[k] * w[lane]; sums1[lane] += a1[k] * w[lane]
        output[pixel, o : o + 4] = epilogue(sums0), ...
    ```
    """
    nest, found = Nest(), tile.sum
    with (
        bound_loop(nest, "blockIdx.x", prod(tile.grid)) as block,
        bound_loop(nest, "threadIdx.x", tile.threads) as thread,
    ):
        image, row_tile, column_tile, part = (
            nest.bind(name, at)
            for name, at in zip(("image", "row_tile", "column_tile", "part"), unravel(block, tile.grid), strict=True)
        )
        shared = tirx.decl_buffer((tile.patch_bytes,), "uint8", f"{found.image.name}_patch", scope="shared")
        nest.add(tirx.AllocBuffer(shared))
        weights = found.weights
        if tile.holds_weights:
            weights = start_whole(nest, weights, thread, tile.threads)
        first = (row_tile * tile.rows, column_tile * tile.columns)
        work = _Work(tile, nest, image, first=first, group=part * tile.groups, shared=shared, weights=weights)
        work.bring(thread)
        barrier(nest)
        work.add_up(thread, store)
    return nest.finish()


@dataclass(frozen=True)
class _Work:
    """What a block does.

    Attributes:
        first: The row and the column of its first pixel among the results; `group` is the first of its groups.
        shared: Bytes of the patch.
        weights: In memory, or all of them in shared memory.
    """

    tile: GroupTile
    nest: Nest
    image: Expr
    first: tuple[Expr, Expr]
    group: Expr
    shared: Var
    weights: Var

    def bring(self, thread: Expr) -> None:
        """Add what brings the patch, a line of channels for each pixel."""
        tile, nest, found = self.tile, self.nest, self.tile.sum
        item, of_vector = found.item_bytes, ACCESS_BYTES // found.item_bytes
        units = prod(tile.patch) * tile.vectors
        memory = tirx.address_of(load_flat(found.image, int64(0)))
        with nest.run("turn", -(-units // tile.threads)) as turn:
            unit = nest.bind("unit", turn * tile.threads + thread)
            line, vector = (nest.bind(name, at) for name, at in zip(
                ("line", "vector"), unravel(unit, (prod(tile.patch), tile.vectors)), strict=True
            ))  # fmt: skip
            row, column = unravel(line, tile.patch)
            begin = nest.bind("begin", self._begin(self._place(0, row), self._place(1, column)))
            limits = (begin, begin + tile.line, int64(prod(shape_of(found.image))), vector)
            inside = [*self._inside(0, row), *self._inside(1, column)]
            with guard(nest, unit < units if units % tile.threads else None):

                def bring() -> None:
                    call_device(
                        nest, f"bring_vector<{item}>", address(self.shared, line * tile.pitch * item), memory,
                        *(tirx.Cast("int32", each) for each in limits),
                    )  # fmt: skip

                def clear() -> None:
                    with nest.when(vector < tile.pitch // of_vector):
                        to = address(self.shared, line * tile.pitch * item + vector * ACCESS_BYTES)
                        call_device(nest, f"copy_async<{ACCESS_BYTES}>", to, memory, tirx.const(0, "int32"))

                if inside:
                    nest.choose(tirx.all(*inside), bring, clear)
                else:
                    bring()
        call_device(nest, "commit_copies")
        call_device(nest, "wait_copies<0>")

    def add_up(self, thread: Expr, store: Store) -> None:
        """Add the sums of a thread, and what stores them."""
        tile, nest, found = self.tile, self.nest, self.tile.sum
        pixel, vector = (
            nest.bind(name, at)
            for name, at in zip(("pixel", "vector"), unravel(thread, (tile.at_once, tile.of_pixel)), strict=True)
        )
        channel = vector * tile.many
        group = nest.bind("group", tirx.floordiv(channel, int64(found.width)))
        own = [unravel(pixel + turn * tile.at_once, (tile.rows, tile.columns)) for turn in range(tile.pixels)]
        sums = [register(nest, f"sums{turn}", tile.many, "float32") for turn in range(tile.pixels)]
        for each in sums:
            with nest.run("lane", tile.many, ForKind.UNROLLED) as lane:
                nest.store(each, [lane], tirx.const(0, "float32"))
        made = self.group * found.width + channel
        with nest.run("ry", found.rows.taps) as ry, nest.run("rx", found.columns.taps) as rx:
            lines = [self._line(at, (ry, rx)) for at in own]
            turns = found.depth // tile.deep
            with nest.run("rc", turns, ForKind.UNROLLED if turns <= _UNROLLED else ForKind.SERIAL) as rc:
                taken = self._take(lines, group * found.depth + rc * tile.deep)
                for at in range(tile.deep):
                    self._multiply(sums, taken, at, made, (ry, rx, rc * tile.deep + at))
        for each, (row, column) in zip(sums, own, strict=True):
            place = (self.first[0] + row, self.first[1] + column)
            ends = ((place[0], found.rows, tile.rows), (place[1], found.columns, tile.columns))
            inside = [at < along.made for at, along, size in ends if along.made % size]
            with guard(nest, tirx.all(*inside) if inside else None):
                flat = (self.image * found.rows.made + place[0]) * found.columns.made + place[1]
                at = flat * (found.made // tile.many) + self.group * (found.width // tile.many) + vector
                at = nest.bind("at", at)
                count = prod(shape_of(found.stage.buffer)) // tile.many
                store(nest, at * tile.many, Lanes(Var("lane", "int64"), tile.many, ((at, count),)), each)

    def _take(self, lines: list[Expr], channel: Expr) -> list[Var]:
        """Add what takes neighbouring channels of the thread's pixels; return the registers."""
        kept = []
        for line in lines:
            name, dtype = f"{self.tile.sum.image.name}_", dtype_of(self.tile.sum.image)
            kept.append(register(self.nest, name, self.tile.deep, dtype))
            place = address(self.shared, (line + channel) * self.tile.sum.item_bytes)
            call_device(self.nest, f"take_elements<{self.tile.deep}>", *registers(kept[-1], 0), place)
        return kept

    def _multiply(self, sums: list[Var], taken: list[Var], at: int, made: Expr, tap: tuple[Expr, Expr, Expr]) -> None:
        """Add the products of the pixels' channel `at` and its weights."""
        found, nest = self.tile.sum, self.nest
        begin = made + found.weight_start
        begin += sum(each * step for each, step in zip(tap, found.weight_steps, strict=True))
        weights = register(nest, f"{found.weights.name}_", self.tile.many, dtype_of(found.weights))
        copy_lanes(nest, weights, int64(0), self.weights, begin, many=self.tile.many)
        with nest.run("lane", self.tile.many, ForKind.UNROLLED) as lane:
            factor = _wide(tirx.BufferLoad(weights, [lane]))
            for total, own in zip(sums, taken, strict=True):
                value = tirx.BufferLoad(total, [lane]) + _wide(tirx.BufferLoad(own, [int64(at)])) * factor
                nest.store(total, [lane], value)

    def _line(self, own: list[Expr], tap: tuple[Expr, Expr]) -> Expr:
        """Return where in the patch the channels of a pixel under a tap begin."""
        tile, found = self.tile, self.tile.sum
        row, column = (
            at * (along.step // along.unit) + (each * (along.distance // along.unit) if along.taps > 1 else int64(0))
            for at, each, along in zip(own, tap, (found.rows, found.columns), strict=True)
        )
        begin = (row * tile.patch[1] + column) * tile.pitch
        if tile.aligned % ACCESS_BYTES == 0:
            return begin
        first = self._begin(self._place(0, row), self._place(1, column))
        return begin + tirx.floormod(first, int64(ACCESS_BYTES // found.item_bytes))

    def _along(self, axis: int) -> Along:
        return (self.tile.sum.rows, self.tile.sum.columns)[axis]

    def _place(self, axis: int, at: Expr) -> Expr:
        """Return the row or column of the image that a place of the patch has."""
        along = self._along(axis)
        return self.first[axis] * along.step + at * along.unit - along.before

    def _inside(self, axis: int, at: Expr) -> list[Expr]:
        """Return what holds where such a place is in the image, as far as it is not always so."""
        along, size = self._along(axis), (self.tile.rows, self.tile.columns)[axis]
        place = self._place(axis, at)
        last = (-(-along.made // size) * size - 1) * along.step + (along.taps - 1) * along.distance - along.before
        return [place >= 0] * (along.before > 0) + [place < along.size] * (last >= along.size)

    def _begin(self, row: Expr, column: Expr) -> Expr:
        """Return the position in the image of the first of the block's channels at a row and a column."""
        found = self.tile.sum
        pixel = (self.image * found.rows.size + row) * found.columns.size + column
        return pixel * found.channels + self.group * found.depth


def _wide(value: Expr) -> Expr:
    return value if str(value.ty.dtype) == "float32" else tirx.Cast("float32", value)
