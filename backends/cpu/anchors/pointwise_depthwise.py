"""A pointwise and a depthwise convolution as one kernel, between which the image, often six times as wide, never
leaves the core.

The loops of one task, which has a band of the result's rows and a chunk of its blocks of channels:

    ring[rows under a window][padded columns][block]     in L1 or L2, its border columns 0
    for block of channels
      for row of the band
        for row of the image under it, not under the one before
          ring[row % rows] = epilogue(data x weights)    the micro-kernel of `contraction`; 0 outside of the image
        for x tile of `columns` pixels
          acc[pixels, vectors] = 0                       registers
          for tap
            acc[i] += ring[row under the tap, x_i under the tap] * weight[tap]
          outputs = epilogue(acc)

Each band computes the rows under its border once more than two kernels would; a chunk of the channels costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tvm import tirx
from tvm.ir import Var
from tvm.tirx import ForKind

from backends.cpu.anchors.contraction import Blocking, Contraction, MicroKernel
from backends.cpu.anchors.epilogue import Epilogue, RegisterRows
from backends.cpu.anchors.extents import Extents
from backends.cpu.anchors.pointwise_depthwise_plan import PairPlan, pair_space
from backends.cpu.anchors.pointwise_depthwise_stages import POINTWISE_DEPTHWISE, PairStages
from backends.cpu.anchors.split import Split, tile_count
from backends.cpu.emit import Expr, Nest, guard, int64, pieces, ramp, splat
from backends.cpu.templates.result import Scheduled
from backends.cpu.templates.space import Space
from fusion.context import Machine


@dataclass(frozen=True)
class PointwiseDepthwise:
    """Template of kernels with a pointwise and a depthwise convolution."""

    name: str = POINTWISE_DEPTHWISE

    def space(self, stages: PairStages, machine: Machine, threads: int) -> Space[PairPlan]:
        """Return the widths of a block of channels, each with every cut of rows and blocks into tasks.

        Raises:
            NotRecognized: The window skips rows.
        """
        return pair_space(stages.sizes, machine, threads)

    def emit(self, func: tirx.PrimFunc, stages: PairStages, machine: Machine, point: PairPlan) -> Scheduled:
        """Return the loops of a point."""
        nest = Nest()
        _emit_tasks(nest, stages, point, machine)
        return Scheduled(func.with_body(nest.finish()), self.name, str(point))


def _emit_tasks(nest: Nest, stages: PairStages, plan: PairPlan, machine: Machine) -> None:
    """Add the parallel loop over bands and chunks."""
    sizes, width = stages.sizes, plan.tile.vectors * machine.vector_lanes
    blocks = -(-sizes.channels // width)
    rest = sizes.channels - (blocks - 1) * width
    chunks, bands = Split(blocks, plan.chunks), Split(sizes.rows, plan.bands)
    tasks = sizes.batch * bands.count * chunks.count
    with nest.loop("task", tasks, ForKind.PARALLEL if tasks > 1 else ForKind.SERIAL) as task:
        chunk, image = tirx.floormod(task, chunks.count), tirx.floordiv(task, chunks.count * bands.count)
        band = tirx.floormod(tirx.floordiv(task, chunks.count), bands.count)
        first, rows = nest.bind("first_row", int64(bands.start(band))), int64(tile_count(bands, band))
        form = _Band.make(nest, stages, plan, machine, nest.bind("image", int64(image)))
        form.clear_borders()
        with nest.loop("block", tile_count(chunks, chunk)) as step:
            index = nest.bind("block_of_channels", int64(chunks.start(chunk) + step))
            kinds = [(index < blocks - 1, width), (index >= blocks - 1, rest)]
            for condition, channels in kinds if rest != width and blocks > 1 else [(None, rest)]:
                with guard(nest, condition):
                    form.emit(index, channels, first, rows)


@dataclass(frozen=True)
class _Band:
    """Writes a band of rows of one block of channels after another.

    Attributes:
        image: Which one of the batch.
        ring: The expanded rows under the window, [row][column][channel of the block].
        expanded, outputs: What is done with the sums of the two convolutions.
    """

    nest: Nest
    stages: PairStages
    plan: PairPlan
    machine: Machine
    image: Expr
    ring: Var
    expanded: Epilogue
    outputs: Epilogue

    @staticmethod
    def make(nest: Nest, stages: PairStages, plan: PairPlan, machine: Machine, image: Expr) -> _Band:
        """Return the form, its buffers allocated."""
        sizes, width = stages.sizes, plan.tile.vectors * machine.vector_lanes
        ring = nest.allocate("ring", (sizes.ring_rows * sizes.ring_columns * width,))
        expanded = Epilogue.prepare(nest, (stages.expanded,), plan.tile.rows * width)
        outputs = Epilogue.prepare(nest, stages.outputs, plan.columns * width)
        return _Band(nest, stages, plan, machine, image, ring, expanded, outputs)

    @property
    def _width(self) -> int:
        """Channels of a block."""
        return self.plan.tile.vectors * self.machine.vector_lanes

    def clear_borders(self) -> None:
        """Set the columns left and right of the image to 0."""
        sizes, left = self.stages.sizes, self.stages.sizes.window.padding[1]
        right = sizes.ring_columns - left - sizes.width
        with self.nest.loop("ring_row", sizes.ring_rows) as row:
            for column, many in ((0, left), (left + sizes.width, right)):
                if many:
                    self._clear(self._place(row, column), many)

    def _clear(self, place: Expr, columns: int) -> None:
        lanes = self.machine.vector_lanes
        with self.nest.loop("zero", columns * self.plan.tile.vectors) as v:
            zeros = splat(tirx.const(0, "float32"), lanes)
            self.nest.store(self.ring, [ramp(place + v * lanes, lanes)], zeros)

    def _place(self, row: Expr, column: Expr) -> Expr:
        return (row * self.stages.sizes.ring_columns + column) * self._width

    def _ring_row(self, row: Expr) -> Expr:
        """Return where the row of the padded image lies in the ring."""
        return self._place(tirx.floormod(row, self.stages.sizes.ring_rows), 0)

    def emit(self, block: Expr, channels: int, first: Expr, rows: Expr) -> None:
        """Add the loops of the rows from `first` on, for the `channels` channels of a block."""
        nest, sizes = self.nest, self.stages.sizes
        with nest.loop("y", rows) as step:
            y = nest.bind("row", first + step)
            new = nest.bind("new", tirx.Select(step == 0, int64(sizes.ring_rows), int64(sizes.window.strides[0])))
            end = y * sizes.window.strides[0] + sizes.ring_rows
            with nest.loop("new_row", new) as index:
                self._fill(block, nest.bind("padded_row", end - new + index))
            self._convolve(block * self._width, channels, y)

    def _fill(self, block: Expr, padded: Expr) -> None:
        """Put one row of the padded image into the ring."""
        nest, sizes = self.nest, self.stages.sizes
        top, left, *_ = sizes.window.padding
        place = nest.bind("place", self._ring_row(padded) + left * self._width)
        source = nest.bind("source", padded - top)
        if not top and sizes.window.rows_under(sizes.rows) <= sizes.height:
            self._expand(block, source, place)
            return
        inside = tirx.all(source >= 0, source < sizes.height)
        with nest.when(inside):
            self._expand(block, source, place)
        with nest.when(tirx.Not(inside)):
            self._clear(place, sizes.width)

    def _expand(self, block: Expr, source: Expr, place: Expr) -> None:
        """Emit the pointwise convolution of one row of the image."""
        sizes, stages, lanes = self.stages.sizes, self.stages, self.machine.vector_lanes
        extents = Extents(
            outer=1, groups=1, height=sizes.width, width=1, channels=sizes.channels, taps=(), depth=sizes.depth,
            lanes=lanes, input_bytes=4 * sizes.width * sizes.depth,
        )  # fmt: skip
        *_, x, channel = stages.expanded.coordinates
        in_ring = place + x * self._width + (channel - block * self._width)
        outputs = (replace(stages.expanded, buffer=self.ring, indices=(in_ring,)),)
        work = Contraction(
            extents, padded_weights=True,
            load_rows=lambda outer, group, y, x, taps, k: tirx.BufferLoad(stages.data, [self.image, source, y, k]),
            load_weights=lambda outer, group, n, taps, k, count: tirx.BufferLoad(
                stages.panels, [tirx.floordiv(n, lanes), k, ramp(0, count)]
            ),
            coordinates=lambda outer, group, y, x, n: [self.image, source, y, n],
            outputs=outputs,
        )  # fmt: skip
        epilogue = replace(self.expanded, outputs=outputs)
        split = Split.of(sizes.width, self.plan.tile.height)
        kernel = MicroKernel(self.nest, work, Blocking(self.plan.tile, 1, 1, 1), work.load_rows, int64(0), epilogue)
        kernel.emit(block, 1, split, int64(0), split.count)

    def _convolve(self, channel: Expr, channels: int, y: Expr) -> None:
        """Emit one row of the result."""
        nest, window = self.nest, self.stages.sizes.window
        under = (y * window.strides[0] + tap * window.dilation[0] for tap in range(window.kernel[0]))
        rows = [nest.bind(f"under{tap}", self._ring_row(row)) for tap, row in enumerate(under)]
        first = 0
        for columns, many in Split.of(self.stages.sizes.columns, self.plan.columns).sizes():
            with nest.loop("x_tile", many) as step:
                self._tile((y, first + step * columns, channel), rows, columns, channels)
            first += columns * many

    def _tile(self, at: tuple[Expr, Expr, Expr], rows: Sequence[Expr], columns: int, channels: int) -> None:
        """Emit the register tile of `columns` pixels and `channels` channels from `at`, (y, x, channel), on."""
        y, x, channel = at
        registers = RegisterRows(self.nest, columns, pieces(channels, self.machine.vector_lanes))
        self._accumulate(registers, channel, rows, x)
        self.outputs.store(
            self.nest, registers, (1, columns), registers.parts, lambda _, i, c: [self.image, y, x + i, channel + c]
        )

    def _accumulate(self, registers: RegisterRows, channel: Expr, rows: Sequence[Expr], x: Expr) -> None:
        """Add all taps of the window; `rows` are those of the ring under it."""
        nest, window, taps = self.nest, self.stages.sizes.window, self.stages.taps
        for ry, row in enumerate(rows):
            for rx in range(window.kernel[1]):
                for part, (at, lanes) in enumerate(registers.parts):
                    load = tirx.BufferLoad(taps, [ry, rx, ramp(channel + at, lanes)])
                    weight = nest.bind(f"w{ry}_{rx}_{at}", load)
                    for i in range(registers.rows):
                        column = (x + i) * window.strides[1] + rx * window.dilation[1]
                        value = tirx.BufferLoad(self.ring, [ramp(row + column * self._width + at, lanes)])
                        registers.accumulate(i, part, value * weight)
