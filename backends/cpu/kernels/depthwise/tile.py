"""The register tile of a depthwise convolution, or of one in narrow groups: pixels of a row times channels.

    acc[pixels] = 0                               registers, one vector of channels each
    for ry inside the image, some rx
      weight[ry, rx]                              registers
      for pixel p of the image under the tile
        each = data[row, p]
        acc[i] += each * weight[ry, rx]           for every x_i that sees p under rx

By taps, LLVM loads a pixel once as well, and keeps it until the last tap that reads it: as many registers again as
there are sums.

Where a vector has groups of several channels, that is done for each channel j of the groups, `each` being channel j of
p in all lanes of its group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

from tvm import tirx
from tvm.ir import Var

from backends.cpu.kernels.depthwise.lower import GROUPED
from backends.cpu.kernels.shared.convolution.depthwise_tiles import window_taps
from backends.cpu.kernels.shared.epilogue import RegisterRows
from backends.cpu.kernels.shared.window import Window
from backends.cpu.machine import Machine
from backends.tensorir.emit import Expr, Nest, guard, int64, pieces, ramp, splat
from backends.tensorir.flat_buffers import load_flat, position_in
from backends.tensorir.roles import Roles
from backends.tensorir.stages import dims_of, shape_of

Inside = Callable[[int, int], bool | Expr]
"""(pixel of the tile, column of the window) -> whether the column of the image under it is there, or when."""

Seen = tuple[int, Sequence[tuple[int, int]], Expr | None]
"""(column of the image under the tile, the pixels that see it, each with the column of the window under which it does,
when it is there; None where it is always)."""


@dataclass(frozen=True)
class TileWriter:
    """Writes the sums of register tiles.

    Attributes:
        groups: Of the channels; None where each channel is one.
        taps: How many weights of a row of the window are in registers beside the sums of a tile.
    """

    nest: Nest
    data: Var
    weight: Var
    groups: int | None
    window: Window
    lanes: int
    taps: int

    @staticmethod
    def of(nest: Nest, roles: Roles, machine: Machine) -> TileWriter:
        """Return what writes the tiles of the anchor."""
        data, weight = roles.operands
        groups = int(roles.attrs["groups"]) if roles.kind == GROUPED else None
        window = Window.from_annotation(roles.attrs["window"])
        taps = window_taps(window, machine)
        return TileWriter(nest, data, weight, groups, window=window, lanes=machine.vector_lanes, taps=taps)

    def column(self, x: Expr, rx: int) -> Expr:
        """Return the column of the image under a tap."""
        return x * self.window.strides[1] + rx * self.window.dilation[1] - self.window.padding[1]

    def sums(
        self, at: tuple[Expr, Expr, Expr], width: int, channel: Expr, channels: int, inside: Inside
    ) -> RegisterRows:
        """Emit the sums of `width` pixels from `at`, (image, y, x), on, for `channels` channels from `channel` on."""
        nest, window, (image, y, x) = self.nest, self.window, at
        registers = RegisterRows(nest, width, pieces(channels, self.lanes))
        first, many = self._valid_rows(y)
        with nest.loop("ry", many) as step:
            ry = first + step
            source = y * window.strides[0] + ry * window.dilation[0] - window.padding[0]
            seen = self._seen(width, inside)
            if self.groups is None:
                self._channels(registers, (image, source, x), ry, channel=channel, seen=seen)
            else:
                self._groups(self.groups, registers, (image, source, x), ry, channel=channel, seen=seen)
        return registers

    def _valid_rows(self, y: Expr) -> tuple[Expr, Expr]:
        """Return the first row of the window inside the image and how many there are."""
        window, nest = self.window, self.nest
        height, kernel = dims_of(self.data)[1], window.kernel[0]
        top, stride, dilation = window.padding[0], window.strides[0], window.dilation[0]
        if not window.padding[0] and not window.padding[2]:
            return tirx.const(0, "int64"), kernel
        above = tirx.max(0, top - y * stride)
        first = nest.bind("ry_first", tirx.floordiv(above + (dilation - 1), dilation))
        below = height - 1 - (y * stride - top)
        end = tirx.max(0, tirx.min(kernel, tirx.floordiv(below, dilation) + 1))
        return first, nest.bind("ry_count", tirx.max(0, end - first))

    def _seen(self, width: int, inside: Inside) -> list[Seen]:
        """Return the columns of the image that `width` pixels see."""
        found = ((*under, inside(*under[1][0])) for under in self.window.readers(width))
        return [(place, readers, None if when is True else when) for place, readers, when in found if when is not False]

    def _channels(
        self, registers: RegisterRows, at: tuple[Expr, Expr, Expr], ry: Expr, channel: Expr, seen: Sequence[Seen]
    ) -> None:
        """Add row `ry` of the window, as many of its columns together as there are registers for; `at` is
        (image, row of it, x)."""
        nest, (image, row, x), kernel = self.nest, at, self.window.kernel[1]
        data = nest.settle("pixel", position_in(self.data, [image, row, self.column(x, 0), channel]))
        weights = nest.settle("tap", position_in(self.weight, [ry, int64(0), channel]))
        apart, each = dims_of(self.data)[-1], dims_of(self.weight)[-1]
        for (part, (lane, lanes)), first in product(enumerate(registers.parts), range(0, kernel, self.taps)):
            taps = {
                rx: nest.bind(f"w{rx}_{lane}", load_flat(self.weight, ramp(weights + (rx * each + lane), lanes)))
                for rx in range(first, min(first + self.taps, kernel))
            }
            for column, readers, when in seen:
                if mine := [(i, taps[rx]) for i, rx in readers if rx in taps]:
                    with guard(nest, when):
                        load = load_flat(self.data, ramp(data + (column * apart + lane), lanes))
                        pixel = nest.bind(f"p{column}_{lane}", load)
                        for i, weight in mine:
                            registers.accumulate(i, part, pixel * weight)

    def _groups(
        self, groups: int, registers: RegisterRows, at: tuple[Expr, Expr, Expr], ry: Expr, channel: Expr,
        seen: Sequence[Seen],
    ) -> None:  # fmt: skip
        """Add row `ry` of the window; `at` is (image, row of it, x)."""
        nest, window, (image, row, x) = self.nest, self.window, at
        members, made = shape_of(self.weight)[2], shape_of(self.weight)[3] // groups
        for (part, (lane, lanes)), j in product(enumerate(registers.parts), range(members)):
            weights = [
                nest.bind(f"w{rx}_{lane}_{j}", tirx.BufferLoad(self.weight, [ry, rx, j, ramp(channel + lane, lanes)]))
                for rx in range(window.kernel[1])
            ]
            width = lanes // made * members
            read = ramp(tirx.floordiv(channel + lane, made) * members, width)
            own = [tirx.const(place // made * members + j, "int32") for place in range(lanes)]
            for column, readers, when in seen:
                pixel = tirx.BufferLoad(self.data, [image, row, self.column(x, 0) + column, read])
                # TVM wants as many lanes as it is asked for.
                spread = tirx.Shuffle([pixel] * (made // members), own) if width > 1 else splat(pixel, lanes)
                with guard(nest, when):
                    each = nest.bind(f"p{column}_{lane}_{j}", spread)
                    for i, rx in readers:
                        registers.accumulate(i, part, each * weights[rx])
