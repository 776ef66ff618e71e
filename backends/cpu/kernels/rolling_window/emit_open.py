"""A window with the convolutions before and behind it over images of which only a call knows the sizes.

    parallel task: (image, rows, blocks of channels)     `shared/open_images`
      the loops of `band`, whose rows go through tiles of a few widths, `shared/row_tiles`
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from tvm import tirx

from backends.cpu.costs import LOADS_PER_CYCLE, TILE_CYCLES
from backends.cpu.kernels.rolling_window.band import BandWriter
from backends.cpu.kernels.rolling_window.plan import open_vectors, widest_window_tile
from backends.cpu.kernels.rolling_window.read import (
    ROLLING_WINDOW,
    RollingSizes,
    RollingStages,
    read_rolling_window,
)
from backends.cpu.kernels.shared.chains.image_producer import Band
from backends.cpu.kernels.shared.contraction import Contraction, MicroKernel
from backends.cpu.kernels.shared.epilogue import RegisterRows
from backends.cpu.kernels.shared.open_image_contraction import choose_panels, panels_of
from backends.cpu.kernels.shared.open_images import OpenGrid
from backends.cpu.kernels.shared.open_panels import OpenPanels, PanelProduct
from backends.cpu.kernels.shared.register_tile import RegisterTile
from backends.cpu.kernels.shared.row_tiles import Bodies, RowTable, RowTiles
from backends.cpu.machine import Machine
from backends.tensorir.emit import Expr, Nest, int64, pieces
from backends.tensorir.result import Scheduled
from fusion.declined import Declined

_LOSS = 1.75
"""How much longer a row may take for want of a body of its width."""

_WIDEST = 7
"""Pixels of a tile that the convolution before the window makes: sums are short there, and tiles of 8 with rests took
1.16 times as long as the kernels for rows of 14 and 1.27 times for rows of 7, those of 14 as much code again. Of
fewer pixels the last is computed several times, as sums of few wait for those before them anyway."""


def emit_open_rolling(func: tirx.PrimFunc, machine: Machine, threads: int) -> Scheduled:
    """Return the loops for images of any size.

    Raises:
        Declined: It has another form.
    """
    stages, nest = read_rolling_window(func), Nest()
    sizes = stages.sizes
    if sizes.skips_rows:
        raise Declined("the window skips rows")
    tables = _Tables.choose(stages, machine)
    blocks = -(-sizes.channels // (tables.vectors * machine.vector_lanes))
    parts = 1 if stages.projection else blocks
    grid = OpenGrid.of(sizes.batch, sizes.rows, 1, parts, machine=machine, threads=threads)
    grid = grid.in_bands(nest).settled(nest)
    with grid.tasks(nest) as task:
        band = Band(task.image, task.first, task.end - task.first, grid.most_rows)
        cuts = _OpenCuts.of(nest, stages, tables, machine)
        form = BandWriter.make(nest, stages, cuts, machine, band)
        if stages.projection is None:
            form.emit_blocks(task.start, task.stop - task.start, task.first, band.rows)
        else:
            form.emit_rows(stages.projection, task.first, band.rows)
    return Scheduled(func.with_body(nest.finish()), ROLLING_WINDOW, f"{grid}; {tables}")


@dataclass(frozen=True)
class _Tables:
    """The tiles of a row of the image, of the window's result, and of the projection.

    Attributes:
        vectors: Of a block of channels.
    """

    vectors: int
    made: RowTable
    seen: RowTable
    projected: OpenPanels | None

    @staticmethod
    def choose(stages: RollingStages, machine: Machine) -> _Tables:
        """Return the tiles for rows of any width."""
        sizes, vectors = stages.sizes, open_vectors(stages.sizes, machine)
        depth, registers = max(sizes.steps, 1), machine.vector_registers
        bodies = Bodies(_LOSS, fill=True)
        made = RowTable.of(vectors, depth, registers, bodies=bodies, most=_WIDEST)
        projected = choose_panels(stages.projection.product(machine).extents, machine) if stages.projection else None
        return _Tables(vectors, made, _window_table(sizes, machine, vectors), projected)

    def __str__(self) -> str:
        behind = f"; projection {self.projected}" if self.projected else ""
        return f"{self.made}; windows {self.seen}{behind}"


def _window_table(sizes: RollingSizes, machine: Machine, vectors: int) -> RowTable:
    """Return the tiles of the window, each operation of which reads memory once, and each tap once more."""
    taps, widest = prod(sizes.window.kernel), widest_window_tile(sizes, machine, vectors)
    costs = (
        taps * (width + 1) * vectors / LOADS_PER_CYCLE + TILE_CYCLES + 2 * width * vectors
        for width in range(1, widest + 1)
    )
    return RowTable.by_costs(RegisterTile(1, widest, vectors), [0.0, *costs], Bodies(_LOSS))


@dataclass(frozen=True)
class _OpenCuts:
    """The rows of a band.

    Attributes:
        made, seen: Tiles of a row of the image, and of the window's result.
        projected: Those of the projection, and how its panels are cut; None where there is none.
        lanes: Of a vector.
    """

    nest: Nest
    made: RowTiles
    seen: RowTiles
    projected: tuple[RowTiles, OpenPanels] | None
    lanes: int

    @staticmethod
    def of(nest: Nest, stages: RollingStages, tables: _Tables, machine: Machine) -> _OpenCuts:
        """Return the tiles of a call's rows."""
        width, columns = int64(stages.sizes.width), nest.settle("columns", int64(stages.sizes.columns))
        made, seen = (
            RowTiles.of(nest, table, int64(0), extent)
            for table, extent in ((tables.made, width), (tables.seen, columns))
        )
        projected = None
        if tables.projected is not None:
            projected = RowTiles.of(nest, tables.projected.table, int64(0), columns), tables.projected
        return _OpenCuts(nest, made, seen, projected=projected, lanes=machine.vector_lanes)

    @property
    def tile(self) -> RegisterTile:
        """Pixels times vectors of the convolution before the window."""
        return self.made.table.tile

    @property
    def columns(self) -> int:
        """Pixels of the window's result at a time, at most."""
        return self.seen.table.heights[-1]

    def make_row(self, kernel: MicroKernel, source: Expr, block: Expr, channels: int) -> None:
        """Emit a row of the image, for a block of channels."""
        nest, tiles, first = self.nest, self.made, block * (self.tile.vectors * self.lanes)
        with nest.loop("x_tile", tiles.count) as step:
            size, x = tiles.tile(nest, step)
            for count in tiles.bodies(nest, size):
                # What a tile lacks is its last pixel again.
                columns = [x, *(nest.settle(f"x{i}", x + tirx.min(int64(i), size - 1)) for i in range(1, count))]
                registers = kernel.sums(int64(0), first, channels, [(source, column) for column in columns])
                self._store_row(kernel, registers, pieces(channels, self.lanes), (source, columns, size), first)

    def _store_row(
        self, kernel: MicroKernel, registers: RegisterRows, channels: Sequence[tuple[int, int]],
        pixels: tuple[Expr, Sequence[Expr], Expr], first: Expr,
    ) -> None:  # fmt: skip
        """Emit the epilogue of a tile of the image, of `pixels`: their row, their columns and how many are others than
        the last."""
        nest, (source, columns, size) = self.nest, pixels

        def at(_: Expr, i: Expr, c: Expr) -> list[Expr]:
            column = columns[i] if isinstance(i, int) else columns[0] + i
            return kernel.work.coordinates(kernel.outer, int64(0), source, column, first + c)

        if kernel.epilogue.scratch is None:
            kernel.epilogue.store(nest, registers, (1, len(columns)), channels, at)
        else:
            kernel.epilogue.keep(nest, registers)
            kernel.epilogue.store_kept(nest, (1, size), sum(lanes for _, lanes in registers.parts), channels, at)

    def tiles(self) -> Iterator[tuple[Expr, int]]:
        """Yield the first pixel and how many for each tile of a row of the result, in its loop."""
        yield from _each(self.nest, self.seen)

    def project(self, work: Contraction) -> None:
        """Emit the projection of a row."""
        assert self.projected is not None, "it has tiles of its own"
        tiles, panels = self.projected
        product = PanelProduct.of(self.nest, work, panels, work.load_rows)
        product.emit(int64(0), int64(panels_of(work.extents, panels)), tiles)


def _each(nest: Nest, tiles: RowTiles) -> Iterator[tuple[Expr, int]]:
    """Yield the first pixel and the number of them in a loop over tiles, once for each body."""
    with nest.loop("x_tile", tiles.count) as step:
        size, x = tiles.tile(nest, step)
        for count in tiles.bodies(nest, size):
            yield x, count
