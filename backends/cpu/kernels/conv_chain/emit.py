"""Two convolutions as one kernel, not both of which are matmuls: the first layers of networks that see a large
image, and blocks that narrow an image before they widen it.

The loops of one task, which has a band of the result's rows:

    lines[rows under a pass][padded columns][channels]   in L1 or L2, its border columns 0
    for pass of some rows of the band
      for row of the image under them, not under those before
        lines[row % rows] = epilogue(data x weights)     the micro-kernel of `contraction`; the border outside
      outputs = epilogue(lines x weights)                the micro-kernel again, its rows under each tap in lines

Each band computes the rows under its border once more than two kernels would. Winograd's method is for neither, which
is why a 3x3 window of stride 1 is seldom the faster in here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm import tirx
from tvm.tirx import ForKind

from backends.cpu.kernels.conv_chain.plan import ChainPlan
from backends.cpu.kernels.conv_chain.read import CONV_CHAIN, ChainStages
from backends.cpu.kernels.shared.chains.image_producer import Band, row_producer, stored_in
from backends.cpu.kernels.shared.chains.line_buffer import LineBuffer
from backends.cpu.kernels.shared.contraction import Contraction, MicroKernel
from backends.cpu.kernels.shared.convolution.sum_over_taps import rows_from, sum_over_taps
from backends.cpu.kernels.shared.row_product import rows_times
from backends.cpu.kernels.shared.split import Split
from backends.cpu.machine import Machine
from backends.tensorir.emit import Expr, Nest, int64
from backends.tensorir.extents import typical
from backends.tensorir.result import Scheduled
from partition.access import CONV2D


def emit_conv_chain(func: tirx.PrimFunc, chain: ChainStages, machine: Machine, point: ChainPlan) -> Scheduled:
    """Return the loops of a point."""
    nest = Nest()
    _emit_tasks(nest, chain, point, machine)
    return Scheduled(func.with_body(nest.finish()), CONV_CHAIN, str(point))


def _emit_tasks(nest: Nest, chain: ChainStages, plan: ChainPlan, machine: Machine) -> None:
    """Add the parallel loop over bands."""
    bands = Split(chain.sizes.rows, plan.bands)
    tasks = chain.sizes.batch * bands.count
    with nest.loop("task", tasks, ForKind.PARALLEL if tasks > 1 else ForKind.SERIAL) as task:
        band, image = tirx.floormod(task, bands.count), tirx.floordiv(task, bands.count)
        first, rows = nest.bind("first_row", int64(bands.start(band))), int64(bands.size(band))
        here = Band(nest.bind("image", int64(image)), first, rows, bands.longest)
        form = _BandWriter.make(nest, chain, plan, machine, here)
        with nest.loop("pass", tirx.floordiv(rows + (plan.rows - 1), plan.rows)) as index:
            start = nest.bind("row", first + index * plan.rows)
            many = nest.bind("rows", tirx.min(int64(plan.rows), first + rows - start))
            form.fill(index, start, many)
            form.convolve(start, many)


@dataclass(frozen=True)
class _BandWriter:
    """Writes a band of rows.

    Attributes:
        lines: The rows of the image under a pass.
        making: The first convolution.
        reading: The second.
    """

    lines: LineBuffer
    making: MicroKernel
    reading: MicroKernel

    @staticmethod
    def make(nest: Nest, chain: ChainStages, plan: ChainPlan, machine: Machine, band: Band) -> _BandWriter:
        """Return the form for a band, its buffers allocated."""
        sizes = chain.sizes
        lines = LineBuffer.allocate(nest, sizes, plan.rows, sizes.channels, machine.vector_lanes)
        making = row_producer(nest, chain.first, sizes=sizes, tile=plan.first, machine=machine, band=band)
        work = reading_of(chain, machine, lines)
        return _BandWriter(lines, making, MicroKernel.inside(nest, work, plan.second, band.image))

    def fill(self, index: Expr, start: Expr, many: Expr) -> None:
        """Emit the rows of the image that pass `index` needs and no pass before it: those under `many` rows of the
        result from `start` on."""
        self.lines.fill(index == 0, start, many, self._make)

    def _make(self, source: Expr, place: Expr) -> None:
        """Emit row `source` of the image at `place`."""
        stored_in(self.lines, self.making, place).emit_rows(source, 1, int64(0), self.making.panels)

    def convolve(self, start: Expr, many: Expr) -> None:
        """Emit `many` rows of the result from `start` on."""
        self.reading.emit_rows(start, many, int64(0), self.reading.panels)


def reading_of(chain: ChainStages, machine: Machine, lines: LineBuffer) -> Contraction:
    """Return the second convolution as a contraction of the rows in the line buffer."""
    sizes, second = chain.sizes, chain.second
    load_rows = rows_from(
        sizes.window,
        sizes.channels,
        groups=1,
        source=lines.buffer,
        first_row=0,
        place=lambda image, row, element: [lines.place(row) + element],
    )
    if second.kind == CONV2D:
        return replace(sum_over_taps(second, machine, sizes.rows)[0], load_rows=load_rows)
    image, panels = second.operands
    work = rows_times(image, panels, sizes.made, second.outputs, machine)
    return replace(
        work, extents=replace(work.extents, height=typical(sizes.rows), width=typical(sizes.columns)),
        load_rows=lambda outer, group, y, x, taps, k: load_rows(outer, group, y, x, [0], k),
        coordinates=lambda outer, group, y, x, n: [outer, y, x, n],
    )  # fmt: skip
