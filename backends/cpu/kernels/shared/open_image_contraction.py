"""Contractions over images of which only a call knows the sizes: the loops of `contraction`, cut at the call.

    parallel task: (image, rows, panels)              `open_images`
      [prologue: the task's input, padded, into scratch]
      for block of panels, tile of pixels             `open_panels`
"""

from __future__ import annotations

from functools import partial

from backends.cpu.kernels.shared.contraction import Contraction, Prologue
from backends.cpu.kernels.shared.extents import Extents
from backends.cpu.kernels.shared.open_images import OpenGrid
from backends.cpu.kernels.shared.open_panels import OpenPanels, PanelProduct, TilePixels, TileRows
from backends.cpu.kernels.shared.row_tiles import Bodies, RowTable, RowTiles
from backends.cpu.machine import Machine
from backends.tensorir.emit import Nest, int64
from backends.tensorir.extents import Extent

_LOSS = 1.75
"""How much longer a row of pixels may take for want of a body of its width: most are longer than a few tiles."""

_SHORT, _LONG = 8, 28
"""Pixels of the largest tile: as many as there are registers for their addresses, and where one vector for each leaves
the sums waiting, more of one row, which share an address."""

_SHARED = 4
"""Vectors of which halves still keep the multipliers busy."""


def choose_panels(extents: Extents, machine: Machine, threads: int = 1) -> OpenPanels:
    """Return the tiles of a contraction whose images are of any size.

    Args:
        threads: That share the channels where an image has few rows: they get two panels in place of one of four
            vectors. 1x3 of 480 and 960 channels to 60, one row of 4 pixels: a half to two thirds of the time.
    """
    table = RowTable.choose([extents], machine, Bodies(_LOSS), _LONG if extents.vectors == 1 else _SHORT)
    if threads > 1 and extents.groups == 1 and extents.vectors == table.tile.vectors == _SHARED:
        table = RowTable.of(
            _SHARED // 2, extents.steps, machine.vector_registers, bodies=Bodies(_LOSS), most=_SHORT
        )  # fmt: skip
    panel_bytes = 4 * table.tile.vectors * extents.lanes * extents.steps
    return OpenPanels(table, max(1, machine.l2_bytes // 2 // panel_bytes))


def grid_of(
    work: Contraction, panels: OpenPanels, images: Extent, rows: Extent, row_bytes: Extent, *, machine: Machine,
    threads: int,
) -> OpenGrid:  # fmt: skip
    """Return the tasks of `work`, whose result has so many images of so many rows, for each of which it reads
    `row_bytes` of the image."""
    extents = work.extents
    weight_bytes = work.arithmetic.bytes * work.arithmetic.step * extents.steps * extents.vectors * extents.lanes
    weight_bytes *= extents.groups
    return OpenGrid.of(
        images, rows, row_bytes, panels_of(extents, panels), machine=machine, threads=threads,
        weight_bytes=weight_bytes,
    )  # fmt: skip


def panels_of(extents: Extents, panels: OpenPanels) -> int:
    """Return how many panels the channels make up."""
    return -(-extents.vectors // panels.table.tile.vectors) * extents.groups


def emit_open_image(
    nest: Nest, work: Contraction, panels: OpenPanels, grid: OpenGrid, width: Extent, prologue: Prologue | None,
    by_lines: bool = False,
) -> None:  # fmt: skip
    """Add the loops of `work`, whose result has `width` pixels in a row and whose channels `grid` cuts by panels.

    Args:
        by_lines: Whether tiles end where a row ends, as long ones do: for rows that are long, and whose pixels share
            the addresses of taps that lie apart. 3x100x100, 32 channels: 1.15 and 1.96 times as long as the kernel of
            that size.
    """
    by_lines = by_lines or panels.table.heights[-1] > _SHORT
    with grid.tasks(nest) as task:
        load_rows = prologue(nest, task.image, task.first, task.end) if prologue else work.load_rows
        columns, rows = nest.settle("columns", int64(width)), task.end - task.first
        tiles = RowTiles.of(nest, panels.table, int64(0), columns if by_lines else rows * columns)
        product = PanelProduct.of(nest, work, panels, load_rows, task.image)
        emit = partial(product.emit, task.start, task.stop - task.start, tiles)
        if not by_lines:
            most = panels.table.heights[-1]
            emit(lambda first: TilePixels.of(nest, task.first, columns, first, most=most))
            return
        with nest.loop("line_of_task", rows) as step:
            line = nest.settle("line", task.first + step)
            emit(lambda first: TileRows(first, line))
