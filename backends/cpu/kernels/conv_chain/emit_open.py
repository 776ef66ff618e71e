"""Two convolutions as one kernel over images of which only a call knows the sizes.

The loops are those of `emit`, but that tiles of a row are those of `shared/open_panels`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from tvm import tirx

from backends.cpu.kernels.conv_chain.emit import reading_of
from backends.cpu.kernels.conv_chain.plan import plan_chain
from backends.cpu.kernels.conv_chain.read import CONV_CHAIN, ChainSizes, ChainStages, read_conv_chain
from backends.cpu.kernels.shared.chains.image_producer import Band, row_producer, stored_in
from backends.cpu.kernels.shared.chains.line_buffer import LineBuffer
from backends.cpu.kernels.shared.open_image_contraction import choose_panels, panels_of
from backends.cpu.kernels.shared.open_images import OpenGrid, OpenTask
from backends.cpu.kernels.shared.open_panels import PanelProduct, TileRows
from backends.cpu.kernels.shared.register_tile import RegisterTile
from backends.cpu.kernels.shared.row_tiles import RowTiles
from backends.cpu.machine import Machine
from backends.tensorir.emit import Expr, Nest, int64
from backends.tensorir.extents import typical
from backends.tensorir.result import Scheduled


def emit_open_chain(func: tirx.PrimFunc, machine: Machine, threads: int) -> Scheduled:
    """Return the loops for images of any size.

    Raises:
        Declined: It has another form.
    """
    chain, nest = read_conv_chain(func), Nest()
    sizes = chain.sizes
    passing = plan_chain(_typical(sizes), machine, threads).rows
    grid = OpenGrid.of(sizes.batch, sizes.rows, 1, 1, machine=machine, threads=threads).settled(nest)
    with grid.tasks(nest) as task:
        band = _OpenBand.of(nest, chain, machine, grid, task, passing=passing)
        rows = task.end - task.first
        with nest.loop("pass", tirx.truncdiv(rows + (passing - 1), int64(passing))) as index:
            start = nest.settle("row", task.first + index * passing)
            many = nest.settle("rows", tirx.min(int64(passing), task.end - start))
            band.lines.fill(index == 0, start, many, band.make)
            band.convolve(start, many)
    return Scheduled(func.with_body(nest.finish()), CONV_CHAIN, f"{grid}; {passing} rows at a time")


def _typical(sizes: ChainSizes) -> ChainSizes:
    """Return the sizes of one typical image."""
    return replace(sizes, batch=1, height=typical(sizes.height), width=typical(sizes.width))


@dataclass(frozen=True)
class _OpenBand:
    """Writes the rows of a task.

    Attributes:
        lines: The rows of the image under a pass.
        making, reading: The convolutions, with the tiles of a row of each.
    """

    nest: Nest
    lines: LineBuffer
    making: tuple[PanelProduct, RowTiles]
    reading: tuple[PanelProduct, RowTiles]

    @staticmethod
    def of(
        nest: Nest, chain: ChainStages, machine: Machine, grid: OpenGrid, task: OpenTask, passing: int
    ) -> _OpenBand:
        """Return the writer of a task, its buffers allocated."""
        sizes, image = chain.sizes, task.image
        lines = LineBuffer.allocate(nest, sizes, passing, sizes.channels, machine.vector_lanes)
        band = Band(image, task.first, task.end - task.first, grid.most_rows)
        producer = row_producer(nest, chain.first, sizes=sizes, tile=RegisterTile(1, 1, 1), machine=machine, band=band)
        work = reading_of(chain, machine, lines)
        first, second = (choose_panels(each.extents, machine) for each in (producer.work, work))
        making = PanelProduct.of(nest, producer.work, first, producer.load_rows, image)
        reading = PanelProduct.of(nest, work, second, work.load_rows, image)
        made, read = (
            RowTiles.of(nest, panels.table, int64(0), nest.settle("width", int64(width)))
            for panels, width in ((first, sizes.width), (second, sizes.columns))
        )
        return _OpenBand(nest, lines, (making, made), (reading, read))

    def make(self, source: Expr, place: Expr) -> None:
        """Emit row `source` of the image at `place`."""
        product, tiles = self.making
        stored = replace(product, kernel=stored_in(self.lines, product.kernel, place))
        _emit_line(stored, tiles, source)

    def convolve(self, start: Expr, many: Expr) -> None:
        """Emit `many` rows of the result from `start` on."""
        product, tiles = self.reading
        with self.nest.loop("line_of_pass", many) as step:
            _emit_line(product, tiles, self.nest.settle("line", start + step))


def _emit_line(product: PanelProduct, tiles: RowTiles, line: Expr) -> None:
    """Emit all panels of a row."""
    panels = panels_of(product.kernel.work.extents, product.panels)
    product.emit(int64(0), int64(panels), tiles, partial(TileRows, line=line))
