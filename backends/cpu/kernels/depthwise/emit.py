"""Depthwise convolution over N, H, W, C activations, vectorised over channels, and convolution in narrow groups, of
which a vector has several.

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

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from tvm import tirx
from tvm.ir import Var
from tvm.tirx import ForKind

from backends.cpu.kernels.depthwise.lower import GROUPED
from backends.cpu.kernels.shared.convolution.depthwise_tiles import DepthwiseTile
from backends.cpu.kernels.shared.epilogue import Epilogue, RegisterRows
from backends.cpu.kernels.shared.split import Split, tile_count
from backends.cpu.kernels.shared.window import Window
from backends.cpu.machine import Machine
from backends.tensorir.emit import Expr, Nest, guard, pieces, ramp, splat
from backends.tensorir.result import Scheduled
from backends.tensorir.roles import Roles
from backends.tensorir.stages import shape_of


def emit_depthwise(func: tirx.PrimFunc, roles: Roles, machine: Machine, point: DepthwiseTile) -> Scheduled:
    """Return the vectorised form of `func`."""
    data, weight = roles.operands
    nest = Nest()
    window = Window.from_annotation(roles.attrs["window"])
    groups = int(roles.attrs["groups"]) if roles.kind == GROUPED else None
    _TaskWriter(
        nest=nest, data=data, weight=weight, groups=groups, window=window, roles=roles, machine=machine, point=point
    ).emit()
    return Scheduled(func.with_body(nest.finish()), roles.kind, str(point))


@dataclass(frozen=True)
class _TaskWriter:
    """Writes the tasks, each of which has an output row and a chunk of the channels.

    Attributes:
        groups: Of the channels; None where each channel is one.
    """

    nest: Nest
    data: Var
    weight: Var
    groups: int | None
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

    work: _TaskWriter
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
                self._groups(self.work.groups, registers, rows=(source, ry), channel=channel, x=x, seen=seen)
            else:
                for rx in range(window.kernel[1]):
                    self._tap(
                        registers,
                        source,
                        tap=(ry, rx),
                        channel=channel,
                        x=x,
                        pixels=[i for i, tap in seen if tap == rx],
                    )
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
