"""A depthwise convolution, or one in narrow groups, over images of which only a call knows the sizes.

    parallel (image, rows, blocks of channels)      `shared/open_images`
      for group of blocks                           all, but of images far beyond L2
        for row, block of channels, x tile          a body for each of a few widths, `shared/row_tiles`
          acc[pixels] = sum over the window         taps that may fall outside ask where they are
          outputs = epilogue(acc)

Of a tile as wide as the table's widest only the first and the last pixels may see the border.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvm import tirx

from backends.cpu.costs import CACHE_LINE, LOADS_PER_CYCLE, TILE_CYCLES
from backends.cpu.kernels.depthwise.plan import taps_of, window_of
from backends.cpu.kernels.depthwise.tile import TileWriter
from backends.cpu.kernels.shared.convolution.depthwise_tiles import widest_tile
from backends.cpu.kernels.shared.epilogue import Epilogue
from backends.cpu.kernels.shared.open_images import OpenGrid, OpenTask
from backends.cpu.kernels.shared.register_tile import RegisterTile
from backends.cpu.kernels.shared.row_tiles import Bodies, RowTable, RowTiles
from backends.cpu.kernels.shared.window import Window
from backends.cpu.machine import Machine
from backends.tensorir.emit import Expr, Nest, guard, int64
from backends.tensorir.extents import Extent
from backends.tensorir.result import Scheduled
from backends.tensorir.roles import Roles, read_roles
from backends.tensorir.stages import dims_of

_LOSS = 1.5
"""How much longer a row may take for want of a body of its width."""
_COMPUTED_AGAIN = 1.15
"""By how much more channels may be computed, for the last block to be as wide as the others, than with a body of its
own."""
_FAR = 2
"""Times L2, beyond which the rows under a window are read in groups of channels."""


def emit_open_depthwise(func: tirx.PrimFunc, machine: Machine, threads: int) -> Scheduled:
    """Return the loops for images of any size.

    Raises:
        Declined: It has another form.
    """
    roles, nest = read_roles(func), Nest()
    batch, height, width, channels = roles.shape
    blocks, table = ChannelBlocks(channels, machine.vector_lanes), _table(roles, machine)
    grid = OpenGrid.of(batch, height, 1, blocks.count, machine=machine, threads=threads)
    grid = grid.in_bands(nest).settled(nest)
    with grid.tasks(nest) as task:
        tiles = RowTiles.of(nest, table, int64(0), int64(width))
        epilogue = Epilogue.prepare(nest, roles.outputs, table.heights[-1] * machine.vector_lanes)
        writer = TileWriter.of(nest, roles, machine)
        for start, stop in _groups(nest, writer, task, machine):
            with nest.loop("row", task.end - task.first) as step:
                y = nest.settle("y", task.first + step)
                for channel, many in blocks.loop(nest, start, stop):
                    with nest.loop("x_tile", tiles.count) as tile:
                        _emit_tile(writer, epilogue, tiles, tile, line=(task.image, y), channel=channel, channels=many)
    return Scheduled(func.with_body(nest.finish()), roles.kind, f"{grid}; {table}")


def _table(roles: Roles, machine: Machine) -> RowTable:
    """Return the widths of tiles of one vector of channels, where sums of a tile hide the latency of those before."""
    taps, tile = taps_of(roles), RegisterTile(1, widest_tile(window_of(roles), machine, 1), 1)
    costs = (taps * (width + 1) / LOADS_PER_CYCLE + TILE_CYCLES + 2 * width for width in range(1, tile.width + 1))
    return RowTable.by_costs(tile, [0.0, *costs], Bodies(_LOSS))


def _groups(nest: Nest, writer: TileWriter, task: OpenTask, machine: Machine) -> Iterator[tuple[Expr, Expr]]:
    """Yield the first block of channels of a task and the one behind the last, some together, inside of a loop."""
    _, height, width, _ = dims_of(writer.data)
    each = nest.settle("together", blocks_together(writer.window, int64(height), int64(width), task, machine))
    with nest.loop("group", tirx.truncdiv(task.stop - task.start + (each - 1), each)) as group:
        start = nest.settle("group_start", task.start + group * each)
        yield start, nest.settle("group_stop", tirx.min(start + each, task.stop))


def blocks_together(window: Window, height: Expr, width: Expr, task: OpenTask, machine: Machine) -> Expr:
    """Return how many blocks of channels of an image pass all rows of a task before the next do: all of them, but where
    they are far larger than L2 under a window, whose rows would come from beyond it once for each row of the result.
    Then it is what stays there, in pairs of lines, as neighbours are fetched together."""
    every, block_bytes = task.stop - task.start, 4 * machine.vector_lanes
    pair = 2 * max(1, CACHE_LINE // block_bytes)
    each = tirx.max(tirx.min(height, int64(window.rows_under(1))) * width, int64(1)) * block_bytes
    pairs = tirx.max(tirx.truncdiv(int64(machine.l2_bytes // 2), each * pair), int64(1))
    are_far, several = each * every > _FAR * machine.l2_bytes, task.end - task.first > 1
    overlap = tirx.const(window.strides[0] < window.rows_under(1), "bool")
    return tirx.max(tirx.Select(tirx.all(are_far, several, overlap), pairs * pair, every), int64(1))


def _emit_tile(
    writer: TileWriter, epilogue: Epilogue, tiles: RowTiles, index: Expr, line: tuple[Expr, Expr], channel: Expr,
    channels: int,
) -> None:  # fmt: skip
    """Emit tile `index` of a line, (image, y), for some channels."""
    nest, (image, y) = writer.nest, line
    size, x = tiles.tile(nest, index)
    for width in tiles.bodies(nest, size):
        border = _Border(writer, x, width, dims_of(writer.data)[2])
        registers = writer.sums((image, y, x), width, channel, channels, border.inside)
        epilogue.store(nest, registers, (1, width), registers.parts, lambda _, i, c: [image, y, x + i, channel + c])


@dataclass(frozen=True)
class _Border:
    """What a tile of `width` pixels from `x` on, which all are in the result, sees of an image with `columns`."""

    writer: TileWriter
    x: Expr
    width: int
    columns: Extent

    def inside(self, pixel: int, rx: int) -> bool | Expr:
        """Return whether a tap at a pixel is inside, or the question where that depends on where the tile is."""
        window = self.writer.window
        column = self.writer.column(self.x + pixel, rx)
        before = pixel * window.strides[1] + rx * window.dilation[1] - window.padding[1] < 0
        # The last pixel of the result sees up to as many columns behind the image as it is padded with.
        left = (self.width - 1 - pixel) * window.strides[1] + (window.kernel[1] - 1 - rx) * window.dilation[1]
        asked = ([column >= 0] if before else []) + ([column < self.columns] if left < window.padding[3] else [])
        return tirx.all(*asked) if asked else True


@dataclass(frozen=True)
class ChannelBlocks:
    """Channels in blocks of `size`, of which the last begins so much earlier that it is as wide as the others, or has
    a body of its own where that computes too much again."""

    channels: int
    size: int

    @property
    def count(self) -> int:
        """How many blocks there are."""
        return -(-self.channels // self.size)

    def loop(self, nest: Nest, start: Expr, stop: Expr) -> Iterator[tuple[Expr, int]]:
        """Yield (first channel, how many) inside a loop over blocks start..stop-1, once for each body."""
        rest = self.channels - (self.count - 1) * self.size
        with nest.loop("block", stop - start) as step:
            index = nest.settle("block_of_channels", start + step)
            if self.count == 1 or self.count * self.size <= self.channels * _COMPUTED_AGAIN:
                first = tirx.min(index * self.size, int64(max(0, self.channels - self.size)))
                yield nest.settle("channel", first), min(self.channels, self.size)
                return
            for condition, many in ((index < self.count - 1, self.size), (index >= self.count - 1, rest)):
                with guard(nest, condition):
                    yield nest.settle("channel", index * self.size), many
