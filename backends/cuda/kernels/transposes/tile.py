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

from tvm import tirx
from tvm.ir import Range, Var
from tvm.sym import Analyzer
from tvm.tirx import ForKind

from backends.cuda.devices import STATIC_SHARED, WARP
from backends.cuda.kernels.runs import GOOD_SHARE, SECTOR_BYTES
from backends.cuda.kernels.transposes.read import TransposedRegion
from backends.tensorir.emit import Expr, Nest, int64
from backends.tensorir.stages import item_bytes_of, substitute
from fusion.declined import Declined

THREADS = 256
_BANK_BYTES = 4
_SHORT = (WARP, 64)
_LONG = (*_SHORT, 96, 128, 160, 192)
"""Elements of a line of a tile. Short ones have more blocks; long ones ask for fewer sectors where these are cut."""
_LONGEST = 1024
"""Elements of a line that a tile has whole."""
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
        loads: By tensor, along its rows.
        stores: Along the columns of the outputs.
    """

    rows: int
    columns: int
    loads: Mapping[Var, Walk]
    stores: Walk

    def line(self, buffer: Var) -> int:
        """Return how many elements lie from one column of a tile to the next in shared memory: lanes that walk along
        the columns meet different banks, each an odd number of them behind the one before."""
        of_bank = max(1, _BANK_BYTES // item_bytes_of(buffer))
        return (-(-self.rows // of_bank) | 1) * of_bank

    @property
    def shared_bytes(self) -> int:
        """Of all tensors."""
        return sum(self.columns * self.line(buffer) * item_bytes_of(buffer) for buffer in self.loads)

    @property
    def elements(self) -> int:
        """Of each tensor."""
        return self.rows * self.columns

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
    tiles = _fitting(parts, _SHORT)
    if not tiles:
        raise Declined("a tile of all that is turned has no room in shared memory")
    best = min(tiles, key=lambda tile: (round(tile.cost, _SHARE_DIGITS), tile.elements))
    if best.share >= GOOD_SHARE:
        return best
    good = (tile for tile in _fitting(parts, _LONG) if tile.share >= GOOD_SHARE)
    return min(good, key=lambda tile: tile.elements, default=best)


def _fitting(parts: TransposedRegion, sizes: Sequence[int]) -> list[TransposeTile]:
    """Return the tiles of lines of these sizes, or whole ones, that shared memory holds."""
    lines = ([size for size in sizes if size < extent] + [extent] * (extent <= _LONGEST) for extent in parts.sizes[1:])
    tiles = (_tile(parts, rows, columns) for rows, columns in product(*lines))
    return [tile for tile in tiles if tile.shared_bytes <= STATIC_SHARED]


def _tile(parts: TransposedRegion, rows: int, columns: int) -> TransposeTile:
    loads = {buffer: _load_walk(parts, buffer, rows, columns) for buffer in parts.turned}
    width, item = parts.sizes[2], max(item_bytes_of(each.buffer) for each in parts.region.outputs)
    of_sector = SECTOR_BYTES // item
    if columns == width and width % of_sector:
        return TransposeTile(rows, columns, loads, _run(rows * columns, item))
    is_aligned = width % of_sector == 0 and columns % of_sector == 0
    return TransposeTile(rows, columns, loads, Walk(rows, columns, width, item, is_run=False, is_aligned=is_aligned))


def _run(elements: int, item_bytes: int) -> Walk:
    """Return how a whole tile is passed along as one line."""
    return Walk(1, elements, elements, item_bytes, is_run=True, is_aligned=False)


def _load_walk(parts: TransposedRegion, buffer: Var, rows: int, columns: int) -> Walk:
    """Return how a tensor is read: as a run where its columns adjoin, and each is whole and no multiple of a sector."""
    (outer, height, width), item = parts.sizes, item_bytes_of(buffer)
    of_sector, analyzer = SECTOR_BYTES // item, Analyzer()
    names = {name: Var(name, "int64") for name in ("outer", "row_tile", "row", "column")}
    bounds = (outer, -(-height // rows), rows, width)
    for var, extent in zip(names.values(), bounds, strict=True):
        analyzer.bind(var, Range(int64(0), int64(extent)))

    def position(row: Expr, column: Expr) -> Expr:
        return substitute(parts.turned[buffer], parts.axes_at(names["outer"], row, column))

    first = position(names["row_tile"] * rows, names["column"])
    if rows % of_sector == 0 and analyzer.can_prove_equal(tirx.floormod(first, int64(of_sector)), int64(0)):
        return Walk(columns, rows, height, item, is_run=False, is_aligned=True)
    adjoins = position(names["row"], names["column"]) - position(int64(0), int64(0))
    if rows == height and analyzer.can_prove_equal(adjoins, names["column"] * height + names["row"]):
        return _run(rows * columns, item)
    return Walk(columns, rows, height, item, is_run=False, is_aligned=False)
