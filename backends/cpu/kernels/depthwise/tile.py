"""The register tile of a depthwise convolution, or of one in narrow groups: pixels of a row times channels.

    acc[pixels] = 0                               registers, one vector of channels each
    for ry inside the image, rx
      acc[i] += data[row, x_i + rx] * weight[ry, rx]

Where a vector has groups of several channels, each pixel is loaded once for a row of the window:

    for ry inside the image, channel j of the groups
      for pixel p of the image under the tile
        each = data[row, p], that of channel j in all lanes of its group
        acc[i] += each * weight[ry, rx, j]        for every x_i that sees p under rx
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

from tvm import tirx
from tvm.ir import Var

from backends.cpu.kernels.depthwise.lower import GROUPED
from backends.cpu.kernels.shared.epilogue import RegisterRows
from backends.cpu.kernels.shared.window import Window
from backends.tensorir.emit import Expr, Nest, guard, int64, pieces, ramp, splat
from backends.tensorir.flat_buffers import load_flat, position_in
from backends.tensorir.roles import Roles
from backends.tensorir.stages import dims_of, shape_of

Inside = Callable[[int, int], bool | Expr]
"""(pixel of the tile, column of the window) -> whether it sees the image, or when."""

Seen = tuple[int, int, Expr | None]
"""(pixel of the tile, column of the window, when it sees the image; None where it does always)."""


@dataclass(frozen=True)
class TileWriter:
    """Writes the sums of register tiles.

    Attributes:
        groups: Of the channels; None where each channel is one.
    """

    nest: Nest
    data: Var
    weight: Var
    groups: int | None
    window: Window
    lanes: int

    @staticmethod
    def of(nest: Nest, roles: Roles, lanes: int) -> TileWriter:
        """Return what writes the tiles of the anchor."""
        data, weight = roles.operands
        groups = int(roles.attrs["groups"]) if roles.kind == GROUPED else None
        window = Window.from_annotation(roles.attrs["window"])
        return TileWriter(nest, data, weight, groups, window=window, lanes=lanes)

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
            found = [(i, rx, inside(i, rx)) for rx in range(window.kernel[1]) for i in range(width)]
            seen = [(i, rx, None if when is True else when) for i, rx, when in found if when is not False]
            if self.groups is not None:
                self._groups(self.groups, registers, (image, source, x), ry, channel=channel, seen=seen)
            else:
                data = nest.settle("pixel", position_in(self.data, [image, source, self.column(x, 0), channel]))
                weights = nest.settle("tap", position_in(self.weight, [ry, int64(0), channel]))
                for rx in range(window.kernel[1]):
                    self._tap(registers, rx, data, weights, [i for i in seen if i[1] == rx])
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

    def _tap(self, registers: RegisterRows, rx: int, data: Expr, weights: Expr, pixels: Sequence[Seen]) -> None:
        """Add a column of the window to the pixels that see it; `data` and `weights` are where the first column is,
        counted in elements."""
        nest, window = self.nest, self.window
        apart, each = dims_of(self.data)[-1], dims_of(self.weight)[-1]
        for part, (lane, lanes) in enumerate(registers.parts):
            load = load_flat(self.weight, ramp(weights + (rx * each + lane), lanes))
            weight = nest.bind(f"w{rx}_{lane}", load)
            for i, _, when in pixels:
                column = i * window.strides[1] + rx * window.dilation[1]
                value = load_flat(self.data, ramp(data + (column * apart + lane), lanes))
                with guard(nest, when):
                    registers.accumulate(i, part, value * weight)

    def _groups(
        self, groups: int, registers: RegisterRows, at: tuple[Expr, Expr, Expr], ry: Expr, channel: Expr,
        seen: Sequence[Seen],
    ) -> None:  # fmt: skip
        """Add row `ry` of the window; `at` is (image, row of it, x)."""
        nest, window, (image, row, x) = self.nest, self.window, at
        members, made = shape_of(self.weight)[2], shape_of(self.weight)[3] // groups
        columns = defaultdict(list)
        for i, rx, when in seen:
            columns[i * window.strides[1] + rx * window.dilation[1] - window.padding[1]].append((i, rx, when))
        for (part, (lane, lanes)), j in product(enumerate(registers.parts), range(members)):
            weights = [
                nest.bind(f"w{rx}_{lane}_{j}", tirx.BufferLoad(self.weight, [ry, rx, j, ramp(channel + lane, lanes)]))
                for rx in range(window.kernel[1])
            ]
            width = lanes // made * members
            read = ramp(tirx.floordiv(channel + lane, made) * members, width)
            own = [tirx.const(place // made * members + j, "int32") for place in range(lanes)]
            for column, readers in sorted(columns.items()):
                pixel = tirx.BufferLoad(self.data, [image, row, x * window.strides[1] + column, read])
                # TVM wants as many lanes as it is asked for.
                spread = tirx.Shuffle([pixel] * (made // members), own) if width > 1 else splat(pixel, lanes)
                with guard(nest, readers[0][2]):
                    each = nest.bind(f"p{column - min(columns)}_{lane}_{j}", spread)
                    for i, rx, _ in readers:
                        registers.accumulate(i, part, each * weights[rx])
