"""The panels of a contraction over tiles of rows of which only a call knows how many there are.

    for block of panels
      for tile of rows, panel
        sums of the tile                      a body for each height
        outputs = epilogue(sums)              one for all of them

The sums go through scratch, as LLVM takes time for the epilogue of each body: 2% of a product of 128 steps of k. What
is stored at a time a core holds back while it computes the next panel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Var

from backends.cpu.kernels.shared.arithmetic import BFloat16
from backends.cpu.kernels.shared.contraction import Blocking, Contraction, MicroKernel
from backends.cpu.kernels.shared.epilogue import Epilogue
from backends.cpu.kernels.shared.row_tiles import RowTable, RowTiles
from backends.tensorir.emit import Expr, Nest, guard, int64, pieces


@dataclass(frozen=True)
class OpenPanels:
    """How the panels of a task with any number of rows are cut.

    Attributes:
        table: The tiles of its rows.
        block: Panels whose weights stay in L2 while the rows of a task pass.
    """

    table: RowTable
    block: int

    def __str__(self) -> str:
        return f"{self.table}; panels by {self.block}"

    @contextmanager
    def loop(self, nest: Nest, first: Expr, panels: Expr, tiles: RowTiles) -> Iterator[PanelTile]:
        """Open the loops over blocks of `panels` panels from `first` on and over `tiles`."""
        blocks = nest.settle("blocks", tirx.truncdiv(panels + (self.block - 1), int64(self.block)))
        with nest.loop("block", blocks) as index:
            begin, end = chunk_of(nest, "panel_of_block", index, panels, blocks)
            with nest.loop("y_tile", tiles.count) as step:
                height, y = tiles.tile(nest, step)
                yield PanelTile(
                    first + begin, end - begin, first=y, height=height, place=(step, tiles.count), after=panels - end
                )  # fmt: skip


@dataclass(frozen=True)
class PanelTile:
    """A tile of rows in the panels of a block.

    Attributes:
        panel, panels: The first panel, and how many there are.
        first, height: The first row, and how many there are.
        place: Which of how many tiles of the block it is.
        after: How many panels of the task are behind the block.
    """

    panel: Expr
    panels: Expr
    first: Expr
    height: Expr
    place: tuple[Expr, Expr]
    after: Expr


def chunk_of(nest: Nest, name: str, index: Expr, extent: Expr, count: Expr) -> tuple[Expr, Expr]:
    """Return where chunk `index` of `count` begins and ends."""
    first = nest.settle(f"first_{name}", tirx.truncdiv(index * extent, count))
    return first, nest.settle(f"end_{name}", tirx.truncdiv((index + 1) * extent, count))


@dataclass(frozen=True)
class TileRows:
    """Rows of a matmul from `first` on, or pixels of a line of an image.

    Attributes:
        line: Of the image; None for a matmul.
    """

    first: Expr
    line: Expr | None = None

    def at(self, index: Expr) -> tuple[Expr, Expr]:
        """Return y and x of one of them."""
        return (self.first + index, int64(0)) if self.line is None else (self.line, self.first + index)

    def all(self, nest: Nest, count: int) -> list[tuple[Expr, Expr]]:
        """Return y and x of the first `count`."""
        return [self.at(index) for index in range(count)]


@dataclass(frozen=True)
class TilePixels:
    """Pixels of an image, which go on in the next line where one ends: their y and x, in buffers."""

    ys: Var
    xs: Var

    @staticmethod
    def of(nest: Nest, line: Expr, columns: Expr, first: Expr, most: int) -> TilePixels:
        """Return `most` pixels from number `first` on, counted from the beginning of `line`."""
        pixels = TilePixels(*(nest.allocate(name, (most,), "int64") for name in ("ys", "xs")))
        y = nest.keep("y", line + tirx.truncdiv(first, columns))
        x = nest.keep("x", tirx.truncmod(first, columns))
        for place in range(most):
            nest.store(pixels.ys, [int64(place)], y)
            nest.store(pixels.xs, [int64(place)], x)
            ends = nest.settle("ends", tirx.Cast("int64", x + 1 == columns))
            nest.store(y.source, [int64(0)], y + ends)
            nest.store(x.source, [int64(0)], (x + 1) * (1 - ends))
        return pixels

    def at(self, index: Expr) -> tuple[Expr, Expr]:
        """Return y and x of one of them."""
        return tirx.BufferLoad(self.ys, [int64(index)]), tirx.BufferLoad(self.xs, [int64(index)])

    def all(self, nest: Nest, count: int) -> list[tuple[Expr, Expr]]:
        """Return y and x of the first `count`, by names that stand for them in loops."""
        places = [self.at(index) for index in range(count)]
        return [(nest.settle(f"y{i}", y), nest.settle(f"x{i}", x)) for i, (y, x) in enumerate(places)]


Place = Callable[[Expr], TileRows | TilePixels]
"""Where the rows of a tile are, from the first of them."""


@dataclass(frozen=True)
class PanelProduct:
    """One product of a task.

    Attributes:
        kernel: Its epilogue has scratch for the sums of a tile in a panel.
    """

    nest: Nest
    panels: OpenPanels
    kernel: MicroKernel

    @staticmethod
    def of(
        nest: Nest, work: Contraction, panels: OpenPanels, load_rows: Callable[..., Expr], outer: Expr = 0,
        scratch: Var | None = None,
    ) -> PanelProduct:  # fmt: skip
        """Return the product; `scratch` is what `PanelProduct.scratch` returns, None for some of its own."""
        if scratch is None:
            scratch = PanelProduct.scratch(nest, panels, work.extents.lanes, work.arithmetic.sums)
        epilogue = Epilogue(work.outputs, scratch, isinstance(work.arithmetic, BFloat16))
        kernel = MicroKernel(
            nest=nest, work=work, blocking=Blocking(panels.table.tile, 1, 1, panels.block), load_rows=load_rows,
            outer=int64(outer), epilogue=epilogue,
        )  # fmt: skip
        return PanelProduct(nest, panels, kernel)

    @staticmethod
    def scratch(nest: Nest, panels: OpenPanels, lanes: int, dtype: str = "float32") -> Var:
        """Return room for the sums of a tile in a panel."""
        return nest.allocate("sums", (panels.table.tile.rows * panels.table.tile.vectors * lanes,), dtype)

    def emit(self, first: Expr, panels: Expr, tiles: RowTiles, place: Place = TileRows) -> None:
        """Emit `panels` panels from `first` on over all `tiles`, whose rows are where `place` says."""
        nest = self.nest
        with self.panels.loop(nest, first, panels, tiles) as tile:
            pixels = place(tile.first)
            with nest.loop("panel", tile.panels) as panel:
                group, vector = self._vector(tile.panel + panel)
                for rows in tiles.bodies(nest, tile.height):
                    self._sums(group, vector, pixels, rows)
                self.store(group, vector, pixels, tile.height)

    def _vector(self, panel: Expr) -> tuple[Expr, Expr]:
        """Return the group and the first vector of a panel: the last one of a group begins so much earlier that it is
        as wide as the others."""
        width, extents = self.panels.table.tile.vectors, self.kernel.work.extents
        group: Expr = int64(0)
        if extents.groups > 1:
            of_group = -(-extents.vectors // width)
            group = self.nest.settle("group", tirx.truncdiv(panel, int64(of_group)))
            panel = tirx.truncmod(panel, int64(of_group))
        return group, self.nest.settle("vector", tirx.min(panel * width, int64(extents.vectors - width)))

    def _sums(self, group: Expr, vector: Expr, pixels: TileRows | TilePixels, rows: int) -> None:
        """Emit the sums of a tile of so many rows."""
        tallest, lanes = self.panels.table.tile, self.kernel.work.extents.lanes
        width = tallest.vectors * lanes
        registers = self.kernel.sums(group, vector * lanes, width, pixels.all(self.nest, rows))
        self.kernel.epilogue.keep(self.nest, registers)

    def store(self, group: Expr, vector: Expr, pixels: TileRows | TilePixels, height: Expr) -> None:
        """Emit the epilogue of one panel, whose sums are in scratch: one loop for tiles of all heights, as LLVM takes
        time for each."""
        nest, tallest, work = self.nest, self.panels.table.tile, self.kernel.work
        lanes, last = work.extents.lanes, work.extents.vectors - tallest.vectors
        width, rest = tallest.vectors * lanes, work.extents.channels - last * lanes
        kinds = [(vector < last, width), (vector >= last, rest)] if rest != width else [(None, width)]
        for condition, channels in kinds:
            with guard(nest, condition):
                self.kernel.epilogue.store_kept(
                    nest, (height, 1), width, pieces(channels, lanes),
                    lambda i, j, c: work.coordinates(self.kernel.outer, group, *pixels.at(i), vector * lanes + c),
                )  # fmt: skip
