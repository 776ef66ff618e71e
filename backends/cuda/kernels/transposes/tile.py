"""How large the tiles of a transpose are, and how threads walk along their lines, so that requests are of full sectors.

A line is what lies next to each other in memory: rows of a column where a tensor is read, columns of a row where
outputs are stored. One that begins inside of a sector asks for a sector more, but that the tile has all of the lines'
elements, which then follow each other as one run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from math import gcd

from tvm import tirx
from tvm.ir import Var
from tvm.sym import Analyzer
from tvm.tirx import ForKind

from backends.cuda.devices import STATIC_SHARED, WARP
from backends.cuda.kernels.affine import analyzer_below
from backends.cuda.kernels.runs import GOOD_SHARE, SECTOR_BYTES
from backends.cuda.kernels.transposes.read import SHORT, TransposedRegion
from backends.tensorir.emit import Expr, Nest, int64
from backends.tensorir.stages import item_bytes_of, substitute
from fusion.declined import Declined

THREADS = 256
_BANKS, _BANK_BYTES = 32, 4
_SMALL = (WARP, 64)
_LONG = (*_SMALL, 96, 128, 160, 192)
_BESIDE_SHORT = (256,)
"""Elements of a line of a tile. Short ones have more blocks; long ones ask for fewer sectors where these are cut,
or have work for the threads of a block where lines across are short."""
_UNITS = (1, 2, 4, 8, 16)
"""Of a line of a tile, times as many as end with a sector."""
_LONGEST = 1024
"""Elements of a line that a tile has whole."""
_ELEMENTS = 1024
"""Of a tile that has all lines whole: fewer are joined by those of the next places of the outer axes."""
_UNROLLED = 26
"""Turns that are written out, which 32 lines of 192 elements take."""
_SHARE_DIGITS = 3
"""Of the bytes that tiles ask for, to which they count as the same: the smaller one is taken."""


@dataclass(frozen=True)
class Walk:
    """How the threads of a block go along the lines of a tile in memory.

    Attributes:
        lines: How many; one where they are a run.
        width: Elements of a line.
        whole: Elements of the tensor that follow each other where the line is, of which tiles have `width` each.
        item_bytes: Of an element.
        is_run: Whether all lines are one behind the other.
        is_aligned: Whether each begins with a sector.
    """

    lines: int
    width: int
    whole: int
    item_bytes: int
    is_run: bool
    is_aligned: bool

    @property
    def cost(self) -> float:
        """Bytes of sectors that warps ask for, by those of the lines; a line begins at any element of a sector."""
        parts, size = -(-self.whole // self.width), self.whole * self.item_bytes
        return 1.0 if self.is_aligned else (size + parts * (SECTOR_BYTES - self.item_bytes)) / size

    @contextmanager
    def each(self, nest: Nest, thread: Expr, begin: Callable[[Expr], Expr]) -> Iterator[tuple[Expr, Expr, Expr | None]]:
        """Open what is done for each element: the line, where in it, and whether there is one; None where there always
        is.

        Args:
            begin: Returns where in memory a line begins.
        """
        of_sector = SECTOR_BYTES // self.item_bytes
        slots = self.width if self.is_aligned else -(-(self.width + of_sector - 1) // of_sector) * of_sector
        units = self.lines * slots
        turns = -(-units // THREADS)
        with nest.run("turn", turns, ForKind.UNROLLED if turns <= _UNROLLED else ForKind.SERIAL) as turn:
            unit = nest.bind("unit", turn * THREADS + thread)
            line = nest.bind("line", tirx.floordiv(unit, int64(slots)))
            at = tirx.floormod(unit, int64(slots))
            conditions = [unit < units] if units % THREADS else []
            if not self.is_aligned:
                at = nest.bind("at", at - tirx.floormod(begin(line), int64(of_sector)))
                conditions += [at >= 0, at < self.width]
            yield line, at, tirx.all(*conditions) if conditions else None


@dataclass(frozen=True)
class TransposeTile:
    """What a block turns.

    Attributes:
        rows: Of units; so for `columns`.
        unit: Elements that stay together.
        loads: By tensor, along its rows.
        stores: Along the columns of the outputs.
        many: Places of the outer axes, whose lines are all whole and follow each other.
    """

    rows: int
    columns: int
    loads: Mapping[Var, Walk]
    stores: Walk
    unit: int
    many: int = 1

    def line(self, buffer: Var) -> int:
        """Return how many elements lie from one column of a tile to the next in shared memory: lanes that walk along
        the columns meet different banks, each an odd number of them behind the one before. Of few columns they meet
        several rows of each, for which these have a part of the banks. The unit of a column lies in the banks behind
        those of the column before."""
        of_bank = max(1, _BANK_BYTES // item_bytes_of(buffer))
        if self.unit > 1:
            elements, all_banks = self.rows * self.unit, _BANKS * _BANK_BYTES // item_bytes_of(buffer)
            return elements + (self.unit - elements) % all_banks
        words = -(-self.rows // of_bank)
        if self.columns < SHORT:
            return (words + (-(-_BANKS // self.columns) - words) % _BANKS) * of_bank
        return (words | 1) * of_bank

    @property
    def shared_bytes(self) -> int:
        """Of all tensors."""
        lines = self.many * self.columns
        return sum(lines * self.line(buffer) * item_bytes_of(buffer) for buffer in self.loads)

    @property
    def elements(self) -> int:
        """Of each tensor."""
        return self.many * self.rows * self.columns * self.unit

    @property
    def cost(self) -> float:
        """Bytes that are asked for, by those that are moved, of each tensor and the outputs."""
        return sum(walk.cost for walk in (*self.loads.values(), self.stores))

    @property
    def share(self) -> float:
        """Of the bytes that are asked for, those that are moved."""
        return (len(self.loads) + 1) / self.cost


def choose_tile(parts: TransposedRegion) -> TransposeTile:
    """Return the tile whose short or whole lines ask for the fewest sectors, of these the smallest; where that uses too
    little of them, the smallest of long lines that uses enough, if there is one.

    Raises:
        Declined: Not even the smallest fits the shared memory of a block.
    """
    tiles = _fitting(parts, _SMALL)
    if not tiles:
        raise Declined("a tile of all that is turned has no room in shared memory")
    best = min(tiles, key=lambda tile: (round(tile.cost, _SHARE_DIGITS), tile.elements))
    if best.share >= GOOD_SHARE:
        return best
    good = (tile for tile in _fitting(parts, _LONG) if tile.share >= GOOD_SHARE)
    return min(good, key=lambda tile: tile.elements, default=best)


def _fitting(parts: TransposedRegion, sizes: Sequence[int]) -> list[TransposeTile]:
    """Return the tiles of lines of these sizes, or whole ones, that shared memory holds."""
    extents, unit = parts.sizes[1:], parts.together
    sizes = _BESIDE_SHORT if min(extents) * unit < SHORT else sizes
    if unit > 1:  # so many units that they end with a sector
        item = max(item_bytes_of(each.buffer) for each in parts.region.outputs)
        whole = SECTOR_BYTES // gcd(SECTOR_BYTES, unit * item)
        sizes = [whole * turns for turns in _UNITS]
    lines = ([size for size in sizes if size < extent] + [extent] * (extent * unit <= _LONGEST) for extent in extents)
    tiles = (_tile(parts, rows, columns) for rows, columns in product(*lines))
    return [tile for tile in tiles if tile.shared_bytes <= STATIC_SHARED]


def _tile(parts: TransposedRegion, rows: int, columns: int) -> TransposeTile:
    unit, item = parts.together, max(item_bytes_of(each.buffer) for each in parts.region.outputs)
    width, of_sector, tile = parts.sizes[2] * unit, SECTOR_BYTES // item, rows * columns * unit
    if (rows, columns) == parts.sizes[1:] and 2 * tile <= _ELEMENTS:
        many = min(parts.sizes[0], _ELEMENTS // tile)
        if all(_adjoins(parts, buffer) for buffer in parts.turned):
            runs = {buffer: _run(many * tile, item_bytes_of(buffer)) for buffer in parts.turned}
            return TransposeTile(rows, columns, runs, _run(many * tile, item), unit=unit, many=many)
    loads = {buffer: _load_walk(parts, buffer, rows, columns) for buffer in parts.turned}
    if columns * unit == width and width % of_sector:
        return TransposeTile(rows, columns, loads, _run(tile, item), unit=unit)
    is_aligned = width % of_sector == 0 and columns * unit % of_sector == 0
    stores = Walk(rows, columns * unit, width, item, is_run=False, is_aligned=is_aligned)
    return TransposeTile(rows, columns, loads, stores, unit=unit)


def _run(elements: int, item_bytes: int) -> Walk:
    """Return how a whole tile is passed along as one line."""
    return Walk(1, elements, elements, item_bytes, is_run=True, is_aligned=False)


def _load_walk(parts: TransposedRegion, buffer: Var, rows: int, columns: int) -> Walk:
    """Return how a tensor is read: as a run where its columns adjoin, and each is whole and no multiple of a sector."""
    (_, height, _), item, unit = parts.sizes, item_bytes_of(buffer), parts.together
    of_sector, place = SECTOR_BYTES // item, _AnyPlace.of(parts, buffer, rows)
    is_even = place.analyzer.can_prove_equal(tirx.floormod(place.begin, int64(of_sector)), int64(0))
    line, whole = rows * unit, height * unit
    if line % of_sector == 0 and is_even:
        return Walk(columns, line, whole, item, is_run=False, is_aligned=True)
    if rows == height and place.is_behind((place.column * height + place.row) * unit + place.own):
        return _run(line * columns, item)
    return Walk(columns, line, whole, item, is_run=False, is_aligned=False)


def _adjoins(parts: TransposedRegion, buffer: Var) -> bool:
    """Return whether columns follow each other in a tensor, and places of the outer axes too."""
    _, height, width = parts.sizes
    place = _AnyPlace.of(parts, buffer, height)
    before = (place.outer * width + place.column) * height + place.row
    return place.is_behind(before * parts.together + place.own, outer=int64(0))


@dataclass(frozen=True)
class _AnyPlace:
    """Any element of a tensor, by variables."""

    parts: TransposedRegion
    buffer: Var
    rows: int
    outer: Var
    row_tile: Var
    row: Var
    column: Var
    own: Var
    analyzer: Analyzer

    @classmethod
    def of(cls, parts: TransposedRegion, buffer: Var, rows: int) -> _AnyPlace:
        """Return one, of tiles of so many rows."""
        outer, height, width = parts.sizes
        names = {name: Var(name, "int64") for name in ("outer", "row_tile", "row", "column", "own")}
        extents = (outer, -(-height // rows), rows, width, parts.together)
        return cls(parts, buffer, rows, **names, analyzer=analyzer_below(zip(names.values(), extents, strict=True)))

    def position(self, outer: Expr, row: Expr, column: Expr, own: Expr) -> Expr:
        """Return where in memory an element is."""
        return substitute(self.parts.turned[self.buffer], self.parts.axes_at(outer, row, column, own))

    @property
    def begin(self) -> Expr:
        """Where the line of a tile begins."""
        return self.position(self.outer, self.row_tile * self.rows, self.column, int64(0))

    def is_behind(self, distance: Expr, outer: Expr | None = None) -> bool:
        """Return whether this is so far behind the first element at its outer place, or at another one."""
        first = self.position(self.outer if outer is None else outer, int64(0), int64(0), int64(0))
        here = self.position(self.outer, self.row, self.column, self.own)
        return bool(self.analyzer.can_prove_equal(here - first, distance))
