"""A depthwise convolution, or one in narrow groups, over images of which only a call knows the sizes.

    parallel rows of all images, few with a part of the channels
      for row, block of channels, x tile            a body for each of a few widths, `shared/row_tiles`
        acc[pixels] = sum over the window           taps that may fall outside ask where they are
        outputs = epilogue(acc)

Of a tile as wide as the table's widest only the first and the last pixels may see the border.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tvm import tirx
from tvm.tirx import ForKind

from backends.cpu.costs import LOADS_PER_CYCLE, TILE_CYCLES
from backends.cpu.kernels.depthwise.lower import GROUPED
from backends.cpu.kernels.depthwise.plan import taps_of, window_of
from backends.cpu.kernels.depthwise.tile import TileWriter
from backends.cpu.kernels.shared.convolution.depthwise_tiles import widest_tile
from backends.cpu.kernels.shared.epilogue import Epilogue
from backends.cpu.kernels.shared.extents import vectors_are_lines
from backends.cpu.kernels.shared.open_panels import chunk_of
from backends.cpu.kernels.shared.register_tile import RegisterTile
from backends.cpu.kernels.shared.row_tiles import Bodies, RowTable, RowTiles
from backends.cpu.machine import Machine
from backends.tensorir.emit import Expr, Nest, guard, int64
from backends.tensorir.extents import Extent
from backends.tensorir.result import Scheduled
from backends.tensorir.roles import Roles, read_roles
from backends.tensorir.stages import dims_of

_LOSS = 1.5
"""How much longer a row may take for want of a body of its width."""
_PAIR_WIDTH = 7
"""Pixels of a row times two vectors, whose lines are read one behind the other, as static loops read images from beyond
L2. With 1, 2 and 4 pixels for rests the code is as long as that of 14, 7, 3, 2 and 1 pixels of one vector, which took
1.15 times as long; with 6 or 8 pixels kernels took 1.01 and 1.05 times as long."""
_FEW_ROWS = 8
"""Rows of a thread from which on a row is no part of what it takes: static loops cut fewer by channels as well."""
_COMPUTED_AGAIN = 1.15
"""By how much more channels may be computed, for the last block to be as wide as the others, than with a body of its
own."""


def emit_open_depthwise(func: tirx.PrimFunc, machine: Machine, threads: int) -> Scheduled:
    """Return the loops for images of any size.

    Raises:
        Declined: It has another form.
    """
    roles, nest = read_roles(func), Nest()
    batch, height, width, channels = roles.shape
    blocks = ChannelBlocks(channels, machine.vector_lanes, vectors=_vectors(roles, machine))
    table = _table(roles, machine, blocks.vectors)
    rows = RowShares(batch, height, blocks.count, threads)
    with rows.tasks(nest) as (first, end):
        tiles = RowTiles.of(nest, table, int64(0), int64(width))
        epilogue = Epilogue.prepare(nest, roles.outputs, table.heights[-1] * blocks.size)
        writer = TileWriter.of(nest, roles, machine)
        with nest.loop("piece", end - first) as step:
            (image, y), start, stop = rows.piece(nest.settle("piece", first + step))
            line = nest.settle("image", image), nest.settle("y", y)
            start, stop = nest.settle("start", start), nest.settle("stop", stop)
            for channel, many in blocks.loop(nest, start, stop):
                with nest.loop("x_tile", tiles.count) as tile:
                    _emit_tile(writer, epilogue, tiles, tile, line=line, channel=channel, channels=many)
    tile = f"open images, {blocks.count} parts of the channels; {table}"
    return Scheduled(func.with_body(nest.finish()), roles.kind, tile)


@dataclass(frozen=True)
class RowShares:
    """The rows of all images, which threads share evenly: of 3 images two threads have no even shares. Few rows are cut
    by channels too: a thread has a piece of all rows of fewer images than threads, as a window sees most of them, and
    else whole rows and a piece of one.

    Attributes:
        parts: Into how many pieces the channels may be cut.
    """

    images: Extent
    rows: Extent
    parts: int
    threads: int

    @property
    def cuts(self) -> Expr:
        """Into how many pieces each row is cut."""
        few = int64(self.images) * self.rows < _FEW_ROWS * self.threads
        return tirx.Select(few, int64(min(self.parts, self.threads)), int64(1))

    @contextmanager
    def tasks(self, nest: Nest) -> Iterator[tuple[Expr, Expr]]:
        """Open the loop over tasks, with the first of its pieces and the one behind its last."""
        pieces = nest.settle("pieces", int64(self.images) * self.rows * self.cuts)
        kind = ForKind.PARALLEL if self.threads > 1 else ForKind.SERIAL
        with nest.loop("task", self.threads, kind) as task:
            yield chunk_of(nest, "piece", task, pieces, int64(self.threads))

    def piece(self, index: Expr) -> tuple[tuple[Expr, Expr], Expr, Expr]:
        """Return (image, y) of a piece, and its parts of the channels, start..stop-1."""
        cuts, rows, every = self.cuts, int64(self.rows), int64(self.images) * self.rows
        apart = int64(self.images) >= self.threads
        row = tirx.Select(apart, tirx.truncdiv(int64(index), cuts), tirx.truncmod(int64(index), every))
        cut = tirx.Select(apart, tirx.truncmod(int64(index), cuts), tirx.truncdiv(int64(index), every))
        image = tirx.truncdiv(row, rows)
        start, stop = (tirx.truncdiv(each * self.parts, cuts) for each in (cut, cut + 1))
        return (image, row - image * rows), start, stop


def _vectors(roles: Roles, machine: Machine) -> int:
    """Return how many vectors of channels a tile has: two where both are lines and there are so many."""
    wide = roles.shape[3] > machine.vector_lanes and widest_tile(window_of(roles), machine, 2) >= _PAIR_WIDTH
    return 2 if wide and vectors_are_lines(machine.vector_lanes) and roles.kind != GROUPED else 1


def _table(roles: Roles, machine: Machine, vectors: int) -> RowTable:
    """Return the widths of tiles of so many vectors of channels: of two, each half of the next one, as few sums wait
    for those before; of one, those that rows lose most without."""
    taps = taps_of(roles)
    if vectors > 1:
        widths = (1, 2, 4, _PAIR_WIDTH)
        costs = [0.0, *(RegisterTile(1, width, vectors).cycles_in_l1(taps) for width in range(1, _PAIR_WIDTH + 1))]
        return RowTable.serving(RegisterTile(1, _PAIR_WIDTH, vectors), widths, costs, Bodies())
    tile = RegisterTile(1, widest_tile(window_of(roles), machine, 1), 1)
    each = (taps * (width + 1) / LOADS_PER_CYCLE + TILE_CYCLES + 2 * width for width in range(1, tile.width + 1))
    return RowTable.by_costs(tile, [0.0, *each], Bodies(_LOSS))


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
    """Channels in blocks of `vectors` of so many `lanes`, of which the last begins so much earlier that it is as wide
    as the others, or has a body of its own where that computes too much again."""

    channels: int
    lanes: int
    vectors: int = 1

    @property
    def size(self) -> int:
        """Channels of a block."""
        return self.lanes * self.vectors

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
