"""Which register tile a contraction uses: the analytic choice over what the machine takes for it.

The micro-kernel is an outer product: for each k, `rows` broadcast scalars times `vectors` loaded vectors into rows x
vectors accumulators. Cost model after Chimera (HPCA'23) section 5 and the port model of Agner Fog's tables: two FMA and
two load ports, an FMA latency of four cycles; beside that the way of the weights from L2, which all tiles of rows but
the first have them from, and the lines of rows that share the sets of L1 (`RowSets`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import gcd

from backends.cpu.costs import (
    FMA_LATENCY,
    FMA_PER_CYCLE,
    L1_WEIGHT_VECTORS,
    LOADS_PER_CYCLE,
    SHARED_ROWS_CYCLES,
    TILE_CYCLES,
    WEIGHT_VECTORS_PER_CYCLE,
    WEIGHTS_WAITED_FOR,
)
from backends.cpu.kernels.shared.split import Split
from backends.cpu.machine import Machine


@dataclass(frozen=True)
class RowSets:
    """How many rows of a tile L1 holds a line of, each of which is used in as many steps of k as it has elements.

    Attributes:
        apart: Neighbouring rows that share no set.
        ways: Lines of a set.
    """

    apart: int
    ways: int

    @staticmethod
    def of(pitch: int, machine: Machine) -> RowSets:
        """Return those of rows so many bytes apart; 0 where nothing is known of that."""
        span = machine.l1_span
        return RowSets(span // gcd(pitch, span), machine.l1_ways) if pitch else NO_SHARED_SETS

    def waits(self, rows: int) -> float:
        """Return the cycles that a tile of so many rows waits in a step of k."""
        more = max(rows / self.apart - self.ways - 1, 0.0)
        return SHARED_ROWS_CYCLES * self.apart * more**2


NO_SHARED_SETS = RowSets(apart=1 << 30, ways=1)
"""Of rows of which nothing is known."""


@dataclass(frozen=True)
class RegisterTile:
    """`height` x `width` output pixels (width 1 for matmul rows) times `vectors` vectors of output channels."""

    height: int
    width: int
    vectors: int

    @property
    def rows(self) -> int:
        return self.height * self.width

    def registers(self) -> int:
        """Return the vector registers that are live: accumulators, one k of weights, one broadcast."""
        return self.rows * self.vectors + self.vectors + 1

    def cycles_in_l1(self, depth: int) -> float:
        """Return the estimated cycles of one tile over `depth` steps of k where L1 keeps the weights, as those of a
        depthwise window."""
        return _tile_cycles(self.rows, self.vectors, depth, in_l1=True)

    def axes(self, name: str) -> dict[str, int]:
        """Return what a point chooses that has this tile as `name`."""
        return {f"{name}.height": self.height, f"{name}.width": self.width, f"{name}.vectors": self.vectors}

    def __str__(self) -> str:
        return f"{self.height}x{self.width}x{self.vectors}v"


@cache
def _tile_cycles(rows: int, vectors: int, depth: int, *, in_l1: bool, sets: RowSets = NO_SHARED_SETS) -> float:
    """Return what a tile takes: its products, or its loads, with one prefetch for each vector of weights, or the way of
    these from L2, a part of which it waits for in any case; the rows that L1 does not keep; and what beginning and
    storing it takes."""
    fma = rows * vectors / FMA_PER_CYCLE
    loads = (rows + 2 * vectors) / LOADS_PER_CYCLE
    weights = 0.0 if in_l1 else vectors / WEIGHT_VECTORS_PER_CYCLE
    step = max(fma, loads, FMA_LATENCY, weights) + WEIGHTS_WAITED_FOR * weights + sets.waits(rows)
    return depth * step + TILE_CYCLES + 2 * rows * vectors


@cache
def choose(
    height: int, width: int, vectors: int, depth: int, registers: int, sets: RowSets = NO_SHARED_SETS
) -> RegisterTile:
    """Return the cheapest tile for a height x width image of `vectors` output vectors and `depth` steps of k."""
    found = cheapest_by_width(height, width, vectors, depth, registers, sets=sets)
    return min(found, key=lambda tile: total_cycles(tile, height, width, vectors, depth, sets=sets))


@cache
def cheapest_by_width(
    height: int, width: int, vectors: int, depth: int, registers: int, sets: RowSets = NO_SHARED_SETS
) -> tuple[RegisterTile, ...]:
    """Return, for each number of vectors in a tile, the cheapest such tile for what `choose` is given."""
    found: dict[int, tuple[float, RegisterTile]] = {}
    for tile in tiles(height, width, vectors, registers):
        cycles = total_cycles(tile, height, width, vectors, depth, sets=sets)
        if tile.vectors not in found or cycles < found[tile.vectors][0]:
            found[tile.vectors] = cycles, tile
    return tuple(tile for _, tile in found.values())


def tiles(height: int, width: int, vectors: int, registers: int) -> Iterator[RegisterTile]:
    """Yield the tiles that fit the registers: rectangles of the image times vectors."""
    for count in range(1, min(vectors, 8) + 1):
        for rows in _balanced(height, registers):
            for columns in _balanced(width, registers // rows):
                if not (rows == 1 or columns == width or width == 1):
                    continue
                tile = RegisterTile(rows, columns, count)
                if tile.registers() <= registers:
                    yield tile


@cache
def _balanced(extent: int, most: int) -> tuple[int, ...]:
    """Return how long the longest tile of a balanced split may be, up to `most`."""
    return tuple(dict.fromkeys(Split.of(extent, tile).longest for tile in range(1, min(extent, most) + 1)))


def total_cycles(
    tile: RegisterTile, height: int, width: int, vectors: int, depth: int, sets: RowSets = NO_SHARED_SETS
) -> float:
    """Return the estimated cycles of a height x width image of `vectors` output vectors in such tiles."""
    full, rest = divmod(vectors, tile.vectors)
    in_l1 = vectors * depth <= L1_WEIGHT_VECTORS
    panels = [(tile.vectors, full)] + ([(rest, 1)] if rest else [])
    return sum(
        _tile_cycles(rows * columns, count, depth, in_l1=in_l1, sets=sets) * many_rows * many_columns * many
        for rows, many_rows in sizes_of(height, tile.height)
        for columns, many_columns in sizes_of(width, tile.width)
        for count, many in panels
    )


@cache
def sizes_of(extent: int, tile: int) -> list[tuple[int, int]]:
    """Return (size, how many) of the kinds of tiles that are no longer than `tile`."""
    return Split.of(extent, tile).sizes()
