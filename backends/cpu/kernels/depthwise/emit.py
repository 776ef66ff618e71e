"""Depthwise convolution over N, H, W, C activations, vectorised over channels, and convolution in narrow groups, of
which a vector has several."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod

import numpy as np
from tvm import relax, te, tirx
from tvm.ir import GenericConst, Var
from tvm.tirx import ForKind

from backends.cpu.kernels.shared.blocking import TASK_CYCLES, chunk_counts
from backends.cpu.kernels.shared.epilogue import Epilogue, RegisterRows
from backends.cpu.kernels.shared.register_tile import RegisterTile
from backends.cpu.kernels.shared.split import Split, tile_count
from backends.cpu.kernels.shared.window import Window, read_under
from backends.cpu.machine import Machine
from backends.tensorir.emit import Expr, Nest, guard, pieces, ramp, splat
from backends.tensorir.result import Scheduled
from backends.tensorir.roles import Roles
from backends.tensorir.space import Space
from backends.tensorir.stages import shape_of
from partition.access import ANCHOR, DEPTHWISE

GROUPED = "grouped_conv2d"


def lower_depthwise(builder: relax.BlockBuilder, call: relax.Call, lanes: int) -> relax.Expr | None:
    """Return a channels-last `nn.conv2d` as an anchor, depthwise or of groups of which a vector has several; None where
    it is neither."""
    data, weight = call.args
    attrs = call.attrs
    if attrs.data_layout != "NHWC" or attrs.kernel_layout != "OIHW" or not isinstance(weight, GenericConst):
        return None
    values = weight.value.numpy()
    groups, shape = int(attrs.groups), values.shape
    if any(str(part.ty.dtype.dtype) != "float32" for part in (call, data)) or 0 in call.ty.shape:
        return None
    if not has_narrow_groups(shape, groups, lanes):
        return None
    window = Window.of(attrs, shape[2:])
    if groups == shape[0] and shape[1] == 1:
        packed = relax.const(np.ascontiguousarray(values[:, 0].transpose(1, 2, 0)))
        return builder.call_te(partial(_convolve, window=window), data, packed, primfunc_name_hint=DEPTHWISE)
    packed = relax.const(np.ascontiguousarray(values.transpose(2, 3, 1, 0)))
    compute = partial(_convolve_groups, window=window, groups=groups)
    return builder.call_te(compute, data, packed, primfunc_name_hint=GROUPED)


def has_narrow_groups(weight: Sequence[int], groups: int, lanes: int) -> bool:
    """Return whether a convolution with weights O x I x H x W makes whole groups with each vector, of no more channels
    than it has, and reads no more for it than a vector."""
    channels, members = int(weight[0]), int(weight[1])
    return groups > 1 and lanes % (channels // groups) == 0 and (channels // groups) % members == 0


def _convolve(data: te.Tensor, weight: te.Tensor, window: Window) -> te.Tensor:
    batch, height, width, channels = (int(n) for n in data.shape)
    out_height, out_width = window.output(height, width)
    ry, rx = (te.reduce_axis((0, n), name) for n, name in zip(window.kernel, ("ry", "rx"), strict=True))

    def sum_over_window(n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        value = read_under(window, (height, width), (y, x), (ry, rx), lambda row, column: data[n, row, column, c])
        return te.sum(value * weight[ry, rx, c], axis=[ry, rx])

    attrs = {ANCHOR: DEPTHWISE, "window": window.annotation()}
    return te.compute((batch, out_height, out_width, channels), sum_over_window, name=DEPTHWISE, attrs=attrs)


def _convolve_groups(data: te.Tensor, weight: te.Tensor, window: Window, groups: int) -> te.Tensor:
    batch, height, width, _ = (int(n) for n in data.shape)
    members, channels = (int(n) for n in weight.shape[2:])
    made = channels // groups
    out_height, out_width = window.output(height, width)
    extents = zip((*window.kernel, members), ("ry", "rx", "rc"), strict=True)
    ry, rx, rc = (te.reduce_axis((0, extent), name) for extent, name in extents)

    def sum_over_window(n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        first = c // made * members
        value = read_under(
            window, (height, width), (y, x), (ry, rx), lambda row, column: data[n, row, column, first + rc]
        )
        return te.sum(value * weight[ry, rx, rc, c], axis=[ry, rx, rc])

    attrs = {ANCHOR: GROUPED, "window": window.annotation(), "groups": groups}
    return te.compute((batch, out_height, out_width, channels), sum_over_window, name=GROUPED, attrs=attrs)


_SPARE_REGISTERS = 4
"""For weights and loaded pixels."""
_MAX_WIDTH = 14


@dataclass(frozen=True)
class DepthwiseTile:
    """How the loops are cut.

    Attributes:
        tile: Pixels of a row times vectors of channels in registers.
        chunks: Cuts of the channels; each with an output row is a parallel task.
        cycles: Estimate for the slowest thread.
    """

    tile: RegisterTile
    chunks: int
    cycles: float

    def __str__(self) -> str:
        return f"{self.tile} channels/{self.chunks}"


@dataclass(frozen=True)
class Depthwise:
    """Recipe:

        parallel (n, output row)
          for block of channels
            for x tile of `width` pixels                tiles at the border know which taps fall outside
              acc[pixels] = 0                           registers, one vector of channels each
              for ry inside the image, rx
                acc[i] += data[row, x_i + rx] * weight[ry, rx]
              outputs = epilogue(acc)

    Nothing is padded or copied: rows outside shorten the loop over ry, columns outside are left out of the border
    tiles.

    Where a vector has groups of several channels, each pixel is loaded once for a row of the window:

              for ry inside the image, channel j of the groups
                for pixel p of the image under the tile
                  each = data[row, p], that of channel j in all lanes of its group
                  acc[i] += each * weight[ry, rx, j]    for every x_i that sees p under rx
    """

    name: str = DEPTHWISE

    def space(self, roles: Roles, machine: Machine, threads: int) -> Space[DepthwiseTile]:
        """Return every width of a register tile, with one vector of channels or two, and cuts of the channels."""
        batch, height, width, channels = roles.shape
        taps = prod(Window.from_annotation(roles.attrs["window"]).kernel)
        taps *= shape_of(roles.operands[1])[2] if roles.kind == GROUPED else 1

        def point(vectors: int, most: int, chunks: int) -> DepthwiseTile:
            tile = RegisterTile(1, Split.of(width, most).longest, vectors)
            blocks = -(-channels // (vectors * machine.vector_lanes))
            sizes = Split.of(width, most).sizes()
            row = sum(RegisterTile(1, size, vectors).cycles(taps) * many for size, many in sizes)
            rounds = -(-batch * height * chunks // threads)
            cycles = rounds * (Split(blocks, chunks).longest * row + TASK_CYCLES)
            return DepthwiseTile(tile, chunks, cycles)

        def every() -> Iterator[DepthwiseTile]:
            for vectors in (1, 2) if channels >= 2 * machine.vector_lanes else (1,):
                blocks = -(-channels // (vectors * machine.vector_lanes))
                widths = range(1, min(width, (machine.vector_registers - _SPARE_REGISTERS) // vectors) + 1)
                for most, chunks in product(widths, chunk_counts(blocks, threads)):
                    yield point(vectors, most, chunks)

        # Two vectors where one pixel row alone would leave the FMA units waiting.
        vectors = 2 if channels >= 2 * machine.vector_lanes and width <= 8 else 1
        most = min((machine.vector_registers - _SPARE_REGISTERS) // vectors, _MAX_WIDTH)
        blocks = -(-channels // (vectors * machine.vector_lanes))
        return Space(point(vectors, most, 1 if batch * height >= 8 * threads else min(blocks, threads)), every)

    def emit(self, func: tirx.PrimFunc, roles: Roles, machine: Machine, point: DepthwiseTile) -> Scheduled:
        """Return the vectorised form of `func`."""
        data, weight = roles.operands
        nest = Nest()
        window = Window.from_annotation(roles.attrs["window"])
        groups = int(roles.attrs["groups"]) if roles.kind == GROUPED else None
        _Work(nest, data, weight, groups, window, roles, machine, point).emit()
        return Scheduled(func.with_body(nest.finish()), self.name, str(point))


@dataclass(frozen=True)
class _Work:
    nest: Nest
    data: Var
    weight: Var
    groups: int | None  # None where each channel is one
    window: Window
    roles: Roles
    machine: Machine
    point: DepthwiseTile

    @property
    def columns(self) -> Split:
        """The register tiles of a row."""
        return Split.of(self.roles.shape[2], self.point.tile.width)

    def emit(self) -> None:
        """Emit the tasks: rows in order, so that the window's other rows are still in cache; few rows are cut by
        channels too."""
        batch, height, _, channels = self.roles.shape
        block = self.point.tile.vectors * self.machine.vector_lanes
        blocks = -(-channels // block)
        chunks = Split(blocks, self.point.chunks)
        with self.nest.loop("task", batch * height * chunks.count, ForKind.PARALLEL) as task:
            chunk, y = tirx.floormod(task, chunks.count), tirx.floormod(tirx.floordiv(task, chunks.count), height)
            n = tirx.floordiv(task, chunks.count * height)
            tile = self.columns.longest * block
            row = _Row(self, n, y, Epilogue.prepare(self.nest, self.roles.outputs, tile))
            with self.nest.loop("block", tile_count(chunks, chunk)) as step:
                index = chunks.start(chunk) + step
                rest = channels - (blocks - 1) * block
                for condition, size in (
                    [(index < blocks - 1, block), (index >= blocks - 1, rest)] if rest != block else [(None, block)]
                ):
                    with guard(self.nest, condition):
                        row.emit(index * block, size)


@dataclass(frozen=True)
class _Row:
    """One output row."""

    work: _Work
    n: Expr
    y: Expr
    epilogue: Epilogue

    def emit(self, channel: Expr, channels: int) -> None:
        """Emit a block of channels: border tiles one by one, those that see only the image in a loop."""
        columns = self.work.columns
        inner = [tile for tile in range(columns.count) if self._is_inner(tile)]
        for tile in range(columns.count):
            if tile not in inner:
                self._tile(channel, channels, columns.start(tile), self._width(tile), columns.start(tile))
        for width in sorted({self._width(tile) for tile in inner}):
            tiles = [tile for tile in inner if self._width(tile) == width]
            with self.work.nest.loop("x_tile", len(tiles)) as step:
                self._tile(channel, channels, columns.start(tiles[0]) + step * width, width, None)

    def _width(self, tile: int) -> int:
        return self.work.columns.short + (tile < self.work.columns.long_tiles)

    def _is_inner(self, tile: int) -> bool:
        first = self.work.columns.start(tile)
        return all(
            self._inside(first + i, rx) for i in range(self._width(tile)) for rx in range(self.work.window.kernel[1])
        )

    def _inside(self, x: int, rx: int) -> bool:
        window = self.work.window
        return 0 <= x * window.strides[1] + rx * window.dilation[1] - window.padding[1] < shape_of(self.work.data)[2]

    def _tile(self, channel: Expr, channels: int, x: Expr, width: int, fixed: int | None) -> None:
        """Emit one register tile; `fixed` is its first column where taps may fall outside."""
        nest, window = self.work.nest, self.work.window
        parts = pieces(channels, self.work.machine.vector_lanes)
        registers = RegisterRows(nest, width, parts)
        first, many = self._valid_rows()
        with nest.loop("ry", many) as step:
            ry = first + step
            source = self.y * window.strides[0] + ry * window.dilation[0] - window.padding[0]
            seen = [
                (i, rx) for rx in range(window.kernel[1]) for i in range(width)
                if fixed is None or self._inside(fixed + i, rx)
            ]  # fmt: skip
            if self.work.groups is not None:
                self._groups(self.work.groups, registers, (source, ry), channel, x, seen)
            else:
                for rx in range(window.kernel[1]):
                    self._tap(registers, source, (ry, rx), channel, x, [i for i, tap in seen if tap == rx])
        self.epilogue.store(nest, registers, (1, width), parts, lambda _, i, c: [self.n, self.y, x + i, channel + c])

    def _valid_rows(self) -> tuple[Expr, Expr]:
        """Return the first row of the window inside the image and how many there are."""
        window, nest = self.work.window, self.work.nest
        height, kernel = shape_of(self.work.data)[1], window.kernel[0]
        top, stride, dilation = window.padding[0], window.strides[0], window.dilation[0]
        if not window.padding[0] and not window.padding[2]:
            return tirx.const(0, "int64"), kernel
        above = tirx.max(0, top - self.y * stride)
        first = nest.bind("ry_first", tirx.floordiv(above + (dilation - 1), dilation))
        below = height - 1 - (self.y * stride - top)
        end = tirx.max(0, tirx.min(kernel, tirx.floordiv(below, dilation) + 1))
        return first, nest.bind("ry_count", tirx.max(0, end - first))

    def _tap(
        self, registers: RegisterRows, row: Expr, tap: tuple[Expr, int], channel: Expr, x: Expr, pixels: Sequence[int]
    ) -> None:
        """Add one tap of the window to the pixels that see it."""
        nest, window = self.work.nest, self.work.window
        for part, (at, lanes) in enumerate(registers.parts):
            weight = nest.bind(f"w{tap[1]}_{at}", tirx.BufferLoad(self.work.weight, [*tap, ramp(channel + at, lanes)]))
            for i in pixels:
                column = (x + i) * window.strides[1] + tap[1] * window.dilation[1] - window.padding[1]
                value = tirx.BufferLoad(self.work.data, [self.n, row, column, ramp(channel + at, lanes)])
                registers.accumulate(i, part, value * weight)

    def _groups(
        self, groups: int, registers: RegisterRows, rows: tuple[Expr, Expr], channel: Expr, x: Expr,
        seen: Sequence[tuple[int, int]],
    ) -> None:  # fmt: skip
        """Add a row of the window, rows being that of the image and of the weights, of which each pixel sees the taps
        `seen`, (pixel, rx)."""
        nest, window, (source, ry) = self.work.nest, self.work.window, rows
        members, made = shape_of(self.work.weight)[2], shape_of(self.work.weight)[3] // groups
        columns = defaultdict(list)
        for i, rx in seen:
            columns[i * window.strides[1] + rx * window.dilation[1] - window.padding[1]].append((i, rx))
        for (part, (at, lanes)), j in product(enumerate(registers.parts), range(members)):
            weights = [
                nest.bind(f"w{rx}_{at}_{j}", tirx.BufferLoad(self.work.weight, [ry, rx, j, ramp(channel + at, lanes)]))
                for rx in range(window.kernel[1])
            ]
            width = lanes // made * members
            read = ramp(tirx.floordiv(channel + at, made) * members, width)
            own = [tirx.const(lane // made * members + j, "int32") for lane in range(lanes)]
            for column, readers in sorted(columns.items()):
                pixel = tirx.BufferLoad(self.work.data, [self.n, source, x * window.strides[1] + column, read])
                # TVM wants as many lanes as it is asked for.
                spread = tirx.Shuffle([pixel] * (made // members), own) if width > 1 else splat(pixel, lanes)
                each = nest.bind(f"p{column - min(columns)}_{at}_{j}", spread)
                for i, rx in readers:
                    registers.accumulate(i, part, each * weights[rx])
