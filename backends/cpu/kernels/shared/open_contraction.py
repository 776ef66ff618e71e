"""Contractions of which only a call knows how many rows they have: the loops of `contraction`, cut at the call.

    rows = b * l                                of the call
    row chunks, panel chunks = look_up(rows)    a table of grids that the estimate filled for some numbers of rows
    parallel task: (row chunk, panel chunk)
      whole tiles, rest = rows of the chunk     a table of tiles, `row_tiles`
      for block of panels, tile ...             `open_panels`
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from tvm import tirx
from tvm.tirx import ForKind

from backends.cpu import amx
from backends.cpu.kernels.shared.blocking import choose_blocking, choose_grid, tile_blockings
from backends.cpu.kernels.shared.contraction import Blocking, Contraction, Prologue, emit_in_tiles, share, tile_form
from backends.cpu.kernels.shared.extents import Extents
from backends.cpu.kernels.shared.open_panels import OpenPanels, PanelProduct, chunk_of
from backends.cpu.kernels.shared.open_products import LoadRows, OpenProducts, SumsByFunction
from backends.cpu.kernels.shared.register_tile import RegisterTile, RowSets
from backends.cpu.kernels.shared.row_tiles import Bodies, RowTable, RowTiles, look_up
from backends.cpu.machine import Machine
from backends.tensorir.emit import Expr, Nest, int64

_PROBES = (1, 2, 3, 4, 6, 8, *(base << power for power in range(2, 10) for base in (3, 4)), 4096, 8192)
"""Numbers of rows for which a grid is chosen."""

_ONE_TILE = 8
"""So many rows and fewer are one tile where L2 does not keep the weights: MiniLM's 1.3 and 1.2 times as long as its
static form for 7 and 8 rows came from weights that passed twice, through tiles of 4 and 3 and of 4 and 4."""

_FILLED = 14
"""Rows of the tallest tile where `tile_sums` fills tiles and L2 does not keep the weights: 9 to 14 rows took 1.2 to 1.3
times as long as the static kernels in tiles of 8, 1.02 to 1.11 in one. Where L1 does not keep so many rows, as they
share its sets, it is `_ONE_TILE`: of 768 channels of 3072 steps of k 128 to 4,096 rows took 0.88 to 1.02 times as long
as the static kernels so, 1.02 to 1.06 in tiles of 14."""

_LOSS = 1.1
"""How much longer any number of rows may take, by estimate, where a tile is filled. A body more takes LLVM 3 ms of 35
(a function of five). At 1.25 a call of MiniLM took 1.11 times as long for 9 rows as at 1.1, 1.09 for 12, 1.05 for 23
and 1.04 for 37 (two vCPUs of a Granite Rapids), where weights come from an L3 that is faster than the products."""

_LAYER_LOSS = 1.6
"""The same of layers before the last one, whose function is there beside that of the last."""

_FULL_TILES = (*range(amx.ROWS, 8 * amx.ROWS, amx.ROWS), *(rows for rows in _PROBES if rows >= 8 * amx.ROWS))
"""Numbers of rows that fill tiles of AMX, from which on terms are looked at."""

_HARDLY_FILLED = 1.05
"""How much longer terms may take, by estimate, of rows that fill their tiles in part, for which estimates are too long:
by turns, two vCPUs of a Granite Rapids, products of 768 and 3072 channels took 1.22 to 1.28 times as long in terms of
65 rows, 1.01 to 1.04 of 76, 0.99 to 1.02 of 80 and 0.96 to 1.00 of 97, by estimates of 1.25, 1.11, 1.06 and 1.10; of
384 and 1536 channels 0.97 to 1.08 of 80 and 0.94 to 1.02 of 97, by estimates of 1.10 and 1.14."""

Shares = Sequence[tuple[Expr, Expr]]
"""Of each product, the first panel and how many."""


@dataclass(frozen=True)
class OpenBlocking:
    """How the loops of a contraction with any number of rows are cut.

    Attributes:
        panels: The cut of a task.
        grids: (from so many rows on, row chunks, panel chunks).
        parallel: Whether tasks are shared out over threads.
        terms_from: Of how many rows on a task multiplies terms of bfloat16 (`term_products.py`); 0: of none.
    """

    panels: OpenPanels
    grids: tuple[tuple[int, int, int], ...]
    parallel: bool
    terms_from: int = 0

    @staticmethod
    def of(
        products: Sequence[Extents], extents: Extents, machine: Machine, threads: int, fill: bool = False
    ) -> OpenBlocking:
        """Return the tiles and grids of `products` side by side, which together have the sizes `extents` but for the
        height.

        Args:
            fill: Whether bodies serve lower tiles too.
        """
        table = _tiles(products, machine, fill)
        found = [(rows, _grid(extents, table.tile, rows, machine, threads)) for rows in _PROBES]
        panels = OpenPanels(table, max(grid.panel_block for _, grid in found))
        terms_from = _terms_from(extents, machine)
        if terms_from:
            in_terms = partial(_in_terms, extents=extents, least=terms_from, machine=machine, threads=threads)
            found = [(rows, in_terms(grid, rows)) for rows, grid in found]
        grids = tuple((rows, grid.row_chunks, grid.panel_chunks) for rows, grid in found)
        return OpenBlocking(panels, grids, threads > 1, terms_from)

    @property
    def serial_rows(self) -> int:
        """With fewer rows there is one task; 0 where there are several for any number."""
        several = (rows for rows, down, across in self.grids if down * across > 1)
        first = next(several, 0)
        return 0 if first == self.grids[0][0] else first

    def below(self, rows: int) -> OpenBlocking:
        """Return the cut of fewer than `rows` rows, which are one task."""
        panels = replace(self.panels, table=self.panels.table.below(rows))
        return OpenBlocking(panels, ((1, 1, 1),), parallel=False)

    def row_chunks(self, rows: Expr) -> Expr:
        """Return into how many chunks so many rows are cut; beyond the table several times as many as the last there
        has, so that threads share them evenly."""
        found = look_up(rows, [(least, chunks) for least, chunks, _ in self.grids])
        last, most, _ = self.grids[-1]
        return found if most == 1 else tirx.Select(rows > last, tirx.truncdiv(rows, int64(last)) * most, found)

    def panel_chunks(self, rows: Expr) -> Expr:
        """Return into how many chunks the panels are cut."""
        return look_up(rows, [(least, chunks) for least, _, chunks in self.grids])

    def longest_task(self, rows: Expr) -> Expr:
        """Return how many rows the largest task has at most, and no less than one."""
        chunks = self.row_chunks(rows)
        return tirx.max(tirx.truncdiv(rows + (chunks - 1), chunks), int64(1))

    def __str__(self) -> str:
        runs: list[tuple[int, str]] = []
        for rows, down, across in self.grids:
            grid = f"{down}x{across}"
            if not runs or runs[-1][1] != grid:
                runs.append((rows, grid))
        first, *later = runs
        grids = first[1] + "".join(f", {grid} from {rows} rows" for rows, grid in later)
        terms = f"; in terms from {self.terms_from} rows a task" if self.terms_from else ""
        return f"open rows: {self.panels.table}; tasks {grids}; panels by {self.panels.block}{terms}"


def panels_of_layer(products: Sequence[Extents], machine: Machine) -> OpenPanels:
    """Return the cut of products whose sums a function computes, over a few tiles of rows."""
    table = RowTable.choose(products, machine, Bodies(_LAYER_LOSS, fill=True))
    panel_bytes = 4 * table.tile.vectors * products[0].lanes * products[0].steps
    return OpenPanels(table, max(1, machine.l2_bytes // 2 // panel_bytes))


def _tiles(products: Sequence[Extents], machine: Machine, fill: bool) -> RowTable:
    """Return the tiles of products of the same rows."""
    weights = 4 * sum(each.vectors * each.lanes * each.steps for each in products)
    from_memory = weights > machine.l2_bytes // 2
    if fill and from_memory:
        bodies = Bodies(_LOSS, fill, one_tile=True)
        waits = any(RowSets.of(each.row_pitch, machine).waits(_FILLED) for each in products)
        tallest = _ONE_TILE if waits else _FILLED
        return RowTable.choose(products, machine, bodies, most=tallest, least=tallest)
    if fill:
        return RowTable.choose(products, machine, Bodies(_LOSS, fill))
    if from_memory:
        return RowTable.choose(products, machine, Bodies(1.0, one_tile=True), least=_ONE_TILE)
    return RowTable.choose(products, machine)


def _terms_from(extents: Extents, machine: Machine) -> int:
    """Return of how many rows on terms are estimated to take less, by a task that has all panels; 0: of none. They are
    those of which tiles are filled well enough, of the least number of tiles that take less where all are full."""
    bytes_each = extents.input_bytes // extents.height

    def longer(rows: int) -> float:
        """Return how many times as long terms take."""
        at = replace(extents, height=rows, input_bytes=bytes_each * rows)
        as_float32 = choose_blocking(replace(at, in_tiles=False), machine, 1)
        return min(found.cycles for found in tile_blockings(at, machine, 1, splits=True)) / as_float32.cycles

    if not (extents.in_tiles and extents.step == 1 and longer(_PROBES[-1]) < 1.0):
        return 0
    full: int = _FULL_TILES[bisect_left(_FULL_TILES, True, key=lambda rows: longer(rows) < 1.0)]
    first: int = full - (amx.ROWS - 1)
    return first + bisect_left(range(first, full), True, key=lambda rows: longer(rows) <= _HARDLY_FILLED)


def _grid(extents: Extents, tallest: RegisterTile, rows: int, machine: Machine, threads: int) -> Blocking:
    """Return the best grid of so many rows; few of them are also shared out in lower tiles."""
    bytes_each = extents.input_bytes // extents.height
    at = replace(extents, height=rows, input_bytes=bytes_each * rows)
    heights = {min(-(-rows // parts), tallest.height) for parts in (1, 2, threads)}
    grids = [choose_grid(at, replace(tallest, height=height), machine, threads) for height in sorted(heights)]
    return min(grids, key=lambda grid: grid.cycles)


def _in_terms(
    grid: Blocking, rows: int, *, extents: Extents, least: int, machine: Machine, threads: int
) -> Blocking:  # fmt: skip
    """Return the best grid of so many rows: `grid`, or one whose tasks have `least` rows or more and are in terms, each
    of which splits the weights of its panels."""
    at = replace(extents, height=rows, input_bytes=extents.input_bytes // extents.height * rows)
    split = tile_blockings(at, machine, threads, splits=True) if rows >= least else ()
    return min((grid, *(each for each in split if rows // each.row_chunks >= least)), key=lambda each: each.cycles)


def emit_open(
    nest: Nest, works: Sequence[Contraction], blocking: OpenBlocking, rows: Expr, prologue: Prologue | None = None,
    alike: bool = False, calls: SumsByFunction | None = None,
) -> None:  # fmt: skip
    """Add the loops of `works`, which have the same `rows`, to `nest`, as `contraction.emit` does where their number is
    known.

    Args:
        calls: That a function computes the sums, as `has_function` allows; None where loops do.
    """
    tasks = _Tasks(nest, works, nest.settle("rows", rows), prologue, alike, calls=calls)
    serial = blocking.serial_rows if blocking.parallel else 0
    if serial and len(works) == 1 and prologue is None:
        # A launch takes 0.7 us, as long as few rows of a small matmul; other kernels take longer than that.
        nest.choose(tasks.rows < serial, lambda: tasks.emit(blocking.below(serial)), lambda: tasks.emit(blocking))
    else:
        tasks.emit(blocking)


@dataclass(frozen=True)
class _Tasks:
    """What `emit_open` is given, and the loop over tasks.

    Attributes:
        calls: That a function computes the sums.
    """

    nest: Nest
    works: Sequence[Contraction]
    rows: Expr
    prologue: Prologue | None
    alike: bool
    calls: SumsByFunction | None

    def emit(self, blocking: OpenBlocking) -> None:
        """Emit the tasks."""
        nest = self.nest
        panels = [-(-each.extents.vectors // blocking.panels.table.tile.vectors) for each in self.works]
        total = panels[0] if self.alike else sum(panels)
        row_chunks = nest.settle("row_chunks", blocking.row_chunks(self.rows))
        panel_chunks = nest.settle("panel_chunks", blocking.panel_chunks(self.rows))
        kind = ForKind.PARALLEL if blocking.parallel else ForKind.SERIAL
        with nest.loop("task", row_chunks * panel_chunks, kind) as task:
            first, end = chunk_of(nest, "row", tirx.truncdiv(task, panel_chunks), self.rows, row_chunks)
            start, stop = chunk_of(nest, "panel", tirx.truncmod(task, panel_chunks), int64(total), panel_chunks)
            load_rows = self.prologue(nest, int64(0), first, end) if self.prologue else None
            shares = [
                (start, stop - start) if self.alike else share(start, stop - start, sum(panels[:place]), own, total)
                for place, own in enumerate(panels)
            ]
            by_tile = partial(self._by_tile, blocking, load_rows, shares, first, end - first)
            if not blocking.terms_from:
                by_tile()
                return
            tile_form(self.works[0].extents).numbers.use_tiles(nest)
            in_terms = partial(self._in_terms, blocking, load_rows, shares, first, end - first)
            nest.choose(end - first >= blocking.terms_from, in_terms, by_tile)

    def _by_tile(
        self, blocking: OpenBlocking, load_rows: LoadRows | None, shares: Shares, first: Expr, many: Expr
    ) -> None:
        """Emit a task's share of each product, tile by tile."""
        nest, tiles = self.nest, RowTiles.of(self.nest, blocking.panels.table, first, many)
        if self.calls:
            products = OpenProducts.of(
                nest, self.works, blocking.panels, load_rows, fetches_results=self.calls.fetch_results
            )
            products.emit(shares, tiles)
            return
        for each, mine in zip(self.works, shares, strict=True):
            low, panels = nest.settle("first_of_product", mine[0]), nest.settle("panels_of_product", mine[1])
            PanelProduct.of(nest, each, blocking.panels, load_rows or each.load_rows).emit(low, panels, tiles)

    def _in_terms(
        self, blocking: OpenBlocking, load_rows: LoadRows | None, shares: Shares, first: Expr, many: Expr
    ) -> None:
        """Emit a task's share of each product, in terms."""
        nest, width = self.nest, blocking.panels.table.tile.vectors
        granted = nest.keep("granted", amx.begin())
        for each, (start, panels) in zip(self.works, shares, strict=True):
            low = nest.settle("first_of_product", start * width)
            high = nest.settle("end_of_product", tirx.min((start + panels) * width, int64(each.extents.vectors)))
            rows = load_rows or each.load_rows
            emit_in_tiles(
                nest, each, rows, int64(0), granted, vectors=(low, high - low), rows=(first, many), has_few=None
            )
        with nest.when(granted > 0):
            nest.add(amx.end())
