"""The loops of a window with the convolutions before and behind it, over a band of the result's rows:

    lines[rows under a window][padded columns][block]    in L1 or L2, its border columns 0, for a maximum -inf
    for block of channels
      for row of the band
        for row of the image under it, not under the one before
          lines[row % rows] = epilogue(data x weights)   the micro-kernel of `contraction`; the border outside
        for x tile of `columns` pixels
          acc[pixels, vectors] = 0                       registers
          for tap
            acc[i] += lines[row under the tap, x_i under the tap] * weight[tap]
          outputs = epilogue(acc)

A projection needs all channels of a pixel: the loop over rows is then outside, every block has a line buffer of its
own, and

    for row of the band
      for block of channels
        lines, acc as above
        pixels[columns][channels] = epilogue(acc)        in L1 or L2
      outputs = epilogue(pixels x weights)               the micro-kernel again

Where no convolution makes the image, its rows are copied into the line buffer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import inf
from typing import Protocol

from tvm import tirx
from tvm.ir import Var

from backends.cpu.kernels.rolling_window.read import Projection, RollingSizes, RollingStages
from backends.cpu.kernels.shared.chains.image_producer import Band, row_producer, stored_in
from backends.cpu.kernels.shared.chains.line_buffer import LineBuffer
from backends.cpu.kernels.shared.contraction import Contraction, MicroKernel
from backends.cpu.kernels.shared.convolution.depthwise_tiles import window_taps
from backends.cpu.kernels.shared.epilogue import Epilogue, RegisterRows
from backends.cpu.kernels.shared.register_tile import RegisterTile
from backends.cpu.machine import Machine
from backends.tensorir.emit import Expr, Nest, guard, int64, pieces, ramp, splat
from backends.tensorir.extents import typical
from backends.tensorir.roles import Output


class RowCuts(Protocol):
    """How the rows are cut into register tiles."""

    @property
    def tile(self) -> RegisterTile:
        """The largest of the convolution before the window; a block of channels has as many vectors."""

    @property
    def columns(self) -> int:
        """Pixels of the largest of the window."""

    def make_row(self, kernel: MicroKernel, source: Expr, block: Expr, channels: int) -> None:
        """Emit row `source` of the image, for the `channels` channels of a block."""

    def tiles(self) -> Iterator[tuple[Expr, int]]:
        """Yield the first pixel and how many for each tile of a row of the window's result, in its loop."""

    def project(self, work: Contraction) -> None:
        """Emit the projection of a row."""


@dataclass(frozen=True)
class BandWriter:
    """Writes a band of rows.

    Attributes:
        cuts: How their loops are cut.
        image: Which one of the batch.
        lines: The rows under the window, of one block of channels or of all.
        making: The convolution that makes them, its outputs put into the line buffer; None where they are copied.
        convolved: What is done with what the window computes.
        pixels: The rows of the projection: a row of the window's result, each pixel `_stride` elements apart.
    """

    nest: Nest
    stages: RollingStages
    cuts: RowCuts
    machine: Machine
    image: Expr
    lines: LineBuffer
    making: MicroKernel | None
    convolved: Epilogue
    pixels: Var | None

    @staticmethod
    def make(nest: Nest, stages: RollingStages, cuts: RowCuts, machine: Machine, band: Band) -> BandWriter:
        """Return the form for a band, its buffers allocated."""
        sizes, width = stages.sizes, cuts.tile.vectors * machine.vector_lanes
        parts = -(-sizes.channels // width) if stages.projection else 1
        outside = -inf if sizes.pools else 0.0
        lines = LineBuffer.allocate(nest, sizes, 1, width, machine.vector_lanes, parts=parts, outside=outside)
        pixels, outputs = None, stages.convolved
        if stages.projection is not None:
            stride = _stride(sizes, machine)
            pixels = nest.allocate("pixels", (sizes.columns * stride,))
            outputs = tuple(_kept(output, pixels, stride) for output in outputs)
        making = None
        if stages.making is not None:
            making = row_producer(nest, stages.making, sizes=sizes, tile=cuts.tile, machine=machine, band=band)
        convolved = Epilogue.prepare(nest, outputs, cuts.columns * width)
        return BandWriter(
            nest=nest,
            stages=stages,
            cuts=cuts,
            machine=machine,
            image=band.image,
            lines=lines,
            making=making,
            convolved=convolved,
            pixels=pixels,
        )

    @property
    def _width(self) -> int:
        """Channels of a block."""
        return self.cuts.tile.vectors * self.machine.vector_lanes

    @property
    def _blocks(self) -> int:
        return -(-self.stages.sizes.channels // self._width)

    def emit_blocks(self, start: Expr, many: Expr, first: Expr, rows: Expr) -> None:
        """Add the loops of `many` blocks of channels from `start` on, over `rows` rows from `first` on."""
        for block, channels in self._each_block(start, many):
            with self.nest.loop("y", rows) as step:
                self._row(block, channels, first, step)

    def emit_rows(self, projection: Projection, first: Expr, rows: Expr) -> None:
        """Add the loops of `rows` rows from `first` on, each with all channels."""
        with self.nest.loop("y", rows) as step:
            for block, channels in self._each_block(0, self._blocks):
                self._row(block, channels, first, step)
            self._project(projection, self.nest.settle("projected_row", first + step))

    def _each_block(self, start: Expr, many: Expr) -> Iterator[tuple[Expr, int]]:
        """Yield (block, channels in it) inside a loop over blocks, once for each number of channels that there is."""
        rest = self.stages.sizes.channels - (self._blocks - 1) * self._width
        with self.nest.loop("block", many) as step:
            index = self.nest.settle("block_of_channels", int64(start + step))
            kinds = [(index < self._blocks - 1, self._width), (index >= self._blocks - 1, rest)]
            for condition, channels in kinds if rest != self._width and self._blocks > 1 else [(None, rest)]:
                with guard(self.nest, condition):
                    yield index, channels

    def _row(self, block: Expr, channels: int, first: Expr, step: Expr) -> None:
        """Emit row `first + step` of the window's result, for the `channels` channels of a block."""
        y = self.nest.settle("row", first + step)
        self.lines.fill(step == 0, y, 1, partial(self._make, block, channels), self._part(block))
        self._convolve(block, channels, y)

    def _part(self, block: Expr) -> Expr:
        """Return the part of the line buffer that a block of channels has."""
        return block if self.pixels is not None else 0

    def _outside(self, lanes: int) -> Expr:
        """Return what the window begins with."""
        return splat(tirx.const(self.lines.outside, "float32"), lanes)

    def _make(self, block: Expr, channels: int, source: Expr, place: Expr) -> None:
        """Emit what puts one row of the image at `place`."""
        if self.making is not None:
            kernel = stored_in(self.lines, self.making, place, block * self._width)
            self.cuts.make_row(kernel, source, block, channels)
            return
        first = block * self._width
        with self.nest.loop("x", self.stages.sizes.width) as x:
            for at, lanes in pieces(channels, self.machine.vector_lanes):
                value = tirx.BufferLoad(self.stages.image, [self.image, source, x, ramp(first + at, lanes)])
                self.nest.store(self.lines.buffer, [ramp(place + x * self._width + at, lanes)], value)

    def _project(self, projection: Projection, y: Expr) -> None:
        """Emit the projection of row `y`."""
        sizes, stride = self.stages.sizes, _stride(self.stages.sizes, self.machine)
        rows = projection.product(self.machine)
        work = replace(
            rows, extents=replace(rows.extents, height=typical(sizes.columns)),
            load_rows=lambda outer, group, x, _, taps, k: tirx.BufferLoad(self.pixels, [x * stride + k]),
            coordinates=lambda outer, group, x, _, n: [self.image, y, x, n],
        )  # fmt: skip
        self.cuts.project(work)

    def _convolve(self, block: Expr, channels: int, y: Expr) -> None:
        """Emit one row of the window's result."""
        nest, window = self.nest, self.stages.sizes.window
        under = (y * window.strides[0] + tap * window.dilation[0] for tap in range(window.kernel[0]))
        rows = [nest.settle(f"under{tap}", self.lines.place(row, self._part(block))) for tap, row in enumerate(under)]
        for x, columns in self.cuts.tiles():
            self._tile((y, x, block * self._width), rows, columns, channels)

    def _tile(self, at: tuple[Expr, Expr, Expr], rows: Sequence[Expr], columns: int, channels: int) -> None:
        """Emit the register tile of `columns` pixels and `channels` channels from `at`, (y, x, channel), on."""
        y, x, channel = at
        registers = RegisterRows(self.nest, columns, pieces(channels, self.machine.vector_lanes))
        self._accumulate(registers, channel, rows, x)
        self.convolved.store(
            self.nest, registers, (1, columns), registers.parts, lambda _, i, c: [self.image, y, x + i, channel + c]
        )

    def _accumulate(self, registers: RegisterRows, channel: Expr, rows: Sequence[Expr], x: Expr) -> None:
        """Take the taps of a row of the window together, as many as there are registers for; `rows` are those of the
        line buffer under it."""
        nest, window = self.nest, self.stages.sizes.window
        if self.stages.taps is None:
            for i, (part, (_, lanes)) in product(range(registers.rows), enumerate(registers.parts)):
                registers.write(i, part, self._outside(lanes))
        firsts = [nest.settle(f"first{ry}", row + x * (window.strides[1] * self._width)) for ry, row in enumerate(rows)]
        seen, kernel = window.readers(registers.rows), window.kernel[1]
        most = kernel if self.stages.taps is None else window_taps(window, self.machine)
        for (ry, first), (part, (at, lanes)), start in product(
            enumerate(firsts), enumerate(registers.parts), range(0, kernel, most)
        ):
            taps = range(start, min(start + most, kernel))
            weights = self._weights(ry, taps, channel + at, lanes)
            for column, readers in seen:
                mine = [(i, rx) for i, rx in readers if rx in taps]
                if not mine:
                    continue
                load = tirx.BufferLoad(self.lines.buffer, [ramp(first + (column * self._width + at), lanes)])
                value = nest.bind(f"p{ry}_{column}_{at}", load)
                for i, rx in mine:
                    total = registers.read(i, part)
                    taken = total + value * weights[rx] if weights else tirx.max(total, value)
                    registers.write(i, part, taken)

    def _weights(self, ry: int, taps: Sequence[int], channel: Expr, lanes: int) -> dict[int, Expr]:
        """Return the weights of `taps` of row `ry` of the window for `lanes` channels from `channel` on; none where it
        pools."""
        if self.stages.taps is None:
            return {}
        return {
            rx: self.nest.bind(f"w{ry}_{rx}", tirx.BufferLoad(self.stages.taps, [ry, rx, ramp(channel, lanes)]))
            for rx in taps
        }


def _stride(sizes: RollingSizes, machine: Machine) -> int:
    """Return how far apart pixels are kept: by no power of two, which would share a few sets of L1."""
    return sizes.channels + machine.vector_lanes


def _kept(output: Output, pixels: Var, stride: int) -> Output:
    """Return `output`, an element of the window's result, stored for the projection."""
    *_, x, channel = output.coordinates
    return replace(output, buffer=pixels, indices=(x * stride + channel,))
