"""Depthwise convolution over N, H, W, C activations, vectorised over channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from tvm import relax, te, tirx
from tvm.ir import GenericConst, Var
from tvm.tirx import ForKind

from backends.cpu.anchors.conv2d import Window, window_access
from backends.cpu.anchors.epilogue import store_tile
from backends.cpu.anchors.roles import Roles
from backends.cpu.anchors.split import Split
from backends.cpu.emit import Expr, Nest, pieces, ramp, splat
from backends.cpu.templates.result import Scheduled
from backends.cpu.templates.stages import shape_of
from fusion.context import Machine
from partition.access import ANCHOR

DEPTHWISE = "depthwise_conv2d"


def lower_depthwise(builder: relax.BlockBuilder, call: relax.Call, lanes: int) -> relax.Expr | None:
    """Return a channels-last `nn.conv2d` of one input channel per group as an anchor; None where it is not one."""
    data, weight = call.args
    attrs = call.attrs
    if attrs.data_layout != "NHWC" or attrs.kernel_layout != "OIHW" or not isinstance(weight, GenericConst):
        return None
    values = weight.value.numpy()
    channels = int(data.ty.shape[3])
    if str(call.ty.dtype.dtype) != "float32" or not int(attrs.groups) == channels == values.shape[0] or channels == 1:
        return None
    packed = relax.const(np.ascontiguousarray(values[:, 0].transpose(1, 2, 0)))
    window = Window.of(attrs, values.shape[2:])
    return builder.call_te(partial(_convolve, window=window), data, packed, primfunc_name_hint=DEPTHWISE)


def _convolve(data: te.Tensor, weight: te.Tensor, window: Window) -> te.Tensor:
    batch, height, width, channels = (int(n) for n in data.shape)
    out_height, out_width = window.output(height, width)
    ry, rx = (te.reduce_axis((0, n), name) for n, name in zip(window.kernel, ("ry", "rx"), strict=True))

    def sum_over_window(n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        at_y, at_x, inside = window_access(window, y, x, ry, rx, height, width)
        value = data[n, at_y, at_x, c]
        value = te.if_then_else(inside, value, tirx.const(0, data.dtype)) if inside is not None else value
        return te.sum(value * weight[ry, rx, c], axis=[ry, rx])

    attrs = {ANCHOR: DEPTHWISE, "window": window.annotation()}
    return te.compute((batch, out_height, out_width, channels), sum_over_window, name=DEPTHWISE, attrs=attrs)


@dataclass(frozen=True)
class Depthwise:
    """Recipe:

        parallel (n, channel block, output row)
          for x tile of `width` pixels                  tiles at the border know which taps fall outside
            acc[pixels] = 0                             registers, one vector of channels each
            for ry inside the image, rx
              acc[i] += data[row, x_i + rx] * weight[ry, rx]
            outputs = epilogue(acc)

    Nothing is padded or copied: rows outside shorten the loop over ry, columns outside are left out of the border tiles.
    """

    name: str = DEPTHWISE

    def apply(self, func: tirx.PrimFunc, roles: Roles, machine: Machine, threads: int) -> Scheduled:
        """Return the vectorised form of `func`."""
        data, weight = roles.operands
        nest = Nest()
        work = _Work(nest, data, weight, Window.from_annotation(roles.attrs["window"]), roles, machine)
        work.emit(threads)
        return Scheduled(func.with_body(nest.finish()), self.name, f"1x{work.columns.longest}x{work.vectors}v")


@dataclass(frozen=True)
class _Work:
    nest: Nest
    data: Var
    weight: Var
    window: Window
    roles: Roles
    machine: Machine

    @property
    def vectors(self) -> int:
        """Vectors of channels per block: two where one pixel row alone would leave the FMA units waiting."""
        channels, width = self.roles.shape[3], self.roles.shape[2]
        return 2 if channels >= 2 * self.machine.vector_lanes and width <= 8 else 1

    @property
    def columns(self) -> Split:
        budget = (self.machine.vector_registers - 4) // self.vectors  # four for weights and loaded pixels
        return Split.of(self.roles.shape[2], min(budget, 14))

    def emit(self, threads: int) -> None:
        batch, height, _, channels = self.roles.shape
        block = self.vectors * self.machine.vector_lanes
        blocks = -(-channels // block)
        with self.nest.loop("task", batch * blocks * height, ForKind.PARALLEL) as task:
            y, index, n = task % height, task // height % blocks, task // (height * blocks)
            rest = channels - (blocks - 1) * block
            if rest == block:
                self._row(n, y, index * block, block)
                return
            with self.nest.when(index < blocks - 1):
                self._row(n, y, index * block, block)
            with self.nest.when(index == blocks - 1):
                self._row(n, y, (blocks - 1) * block, rest)

    def _row(self, n: Expr, y: Expr, channel: Expr, channels: int) -> None:
        """Emit one output row: border tiles one by one, those that see only the image in a loop."""
        columns = self.columns
        inner = [tile for tile in range(columns.count) if self._is_inner(tile)]
        for tile in range(columns.count):
            if tile not in inner:
                self._tile(n, y, channel, channels, columns.start(tile), self._width(tile), columns.start(tile))
        for width in sorted({self._width(tile) for tile in inner}):
            tiles = [tile for tile in inner if self._width(tile) == width]
            with self.nest.loop("x_tile", len(tiles)) as step:
                self._tile(n, y, channel, channels, columns.start(tiles[0]) + step * width, width, None)

    def _width(self, tile: int) -> int:
        return self.columns.short + (tile < self.columns.long_tiles)

    def _is_inner(self, tile: int) -> bool:
        first = self.columns.start(tile)
        return all(self._inside(first + i, rx) for i in range(self._width(tile)) for rx in range(self.window.kernel[1]))

    def _inside(self, x: int, rx: int) -> bool:
        at = x * self.window.strides[1] + rx * self.window.dilation[1] - self.window.padding[1]
        return 0 <= at < shape_of(self.data)[2]

    def _tile(self, n: Expr, y: Expr, channel: Expr, channels: int, x: Expr, width: int, fixed: int | None) -> None:
        """Emit one register tile; `fixed` is its first column where taps may fall outside."""
        nest = self.nest
        parts = pieces(channels, self.machine.vector_lanes)
        acc = nest.allocate("acc", (width * channels,))
        for i in range(width):
            for at, lanes in parts:
                nest.store(acc, [ramp(i * channels + at, lanes)], splat(tirx.const(0, "float32"), lanes))
        first, many = self._valid_rows(y)
        with nest.loop("ry", many) as step:
            ry = first + step
            row = y * self.window.strides[0] + ry * self.window.dilation[0] - self.window.padding[0]
            for rx in range(self.window.kernel[1]):
                pixels = [i for i in range(width) if fixed is None or self._inside(fixed + i, rx)]
                self._tap(acc, n, row, ry, rx, channel, channels, x, pixels, parts)
        store_tile(
            nest, self.roles.outputs, acc, (1, width), channels, parts, lambda _, i, c: [n, y, x + i, channel + c]
        )

    def _valid_rows(self, y: Expr) -> tuple[Expr, Expr]:
        """Return the first row of the window inside the image and how many there are."""
        height, kernel = shape_of(self.data)[1], self.window.kernel[0]
        top, stride, dilation = self.window.padding[0], self.window.strides[0], self.window.dilation[0]
        if not self.window.padding[0] and not self.window.padding[2]:
            return tirx.const(0, "int64"), kernel
        above = tirx.max(0, top - y * stride)
        first = self.nest.bind("ry_first", tirx.floordiv(above + (dilation - 1), dilation))
        below = tirx.max(0, height - 1 - (y * stride - top))
        end = tirx.min(kernel, tirx.floordiv(below, dilation) + 1)
        return first, self.nest.bind("ry_count", tirx.max(0, end - first))

    def _tap(
        self, acc: Var, n: Expr, row: Expr, ry: Expr, rx: int, channel: Expr, channels: int, x: Expr, pixels: Sequence[int],
        parts: list[tuple[int, int]],
    ) -> None:  # fmt: skip
        nest = self.nest
        for at, lanes in parts:
            tap = nest.bind(f"w{rx}_{at}", tirx.BufferLoad(self.weight, [ry, rx, ramp(channel + at, lanes)]))
            for i in pixels:
                column = (x + i) * self.window.strides[1] + rx * self.window.dilation[1] - self.window.padding[1]
                value = tirx.BufferLoad(self.data, [n, row, column, ramp(channel + at, lanes)])
                where = [ramp(i * channels + at, lanes)]
                nest.store(acc, where, tirx.BufferLoad(acc, where) + value * tap)
