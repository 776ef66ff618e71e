"""Which register tile a contraction uses: the analytic choice over what the machine takes for it.

The micro-kernel is an outer product: for each k, `rows` broadcast scalars times `vectors` loaded vectors into rows x
vectors accumulators. Cost model after Chimera (HPCA'23) section 5 and the port model of Agner Fog's tables: two FMA and
two load ports, an FMA latency of four cycles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

from backends.cpu.costs import FMA_LATENCY, FMA_PER_CYCLE, LOADS_PER_CYCLE, TILE_CYCLES
from backends.cpu.kernels.shared.split import Split


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

    def cycles(self, depth: int) -> float:
        """Return the estimated cycles of one tile over `depth` steps of k."""
        fma = self.rows * self.vectors / FMA_PER_CYCLE
        loads = (self.rows + self.vectors) / LOADS_PER_CYCLE
        return depth * max(fma, loads, FMA_LATENCY) + TILE_CYCLES + 2 * self.rows * self.vectors

    def __str__(self) -> str:
        return f"{self.height}x{self.width}x{self.vectors}v"


@cache
def choose(height: int, width: int, vectors: int, depth: int, registers: int) -> RegisterTile:
    """Return the cheapest tile for a height x width image of `vectors` output vectors and `depth` steps of k."""
    found = cheapest_by_width(height, width, vectors, depth, registers)
    return min(found, key=lambda tile: total_cycles(tile, height, width, vectors, depth))


def cheapest_by_width(height: int, width: int, vectors: int, depth: int, registers: int) -> list[RegisterTile]:
    """Return, for each number of vectors in a tile, the cheapest such tile for what `choose` is given."""
    found: dict[int, tuple[float, RegisterTile]] = {}
    for tile in tiles(height, width, vectors, registers):
        cycles = total_cycles(tile, height, width, vectors, depth)
        if tile.vectors not in found or cycles < found[tile.vectors][0]:
            found[tile.vectors] = cycles, tile
    return [tile for _, tile in found.values()]


def tiles(height: int, width: int, vectors: int, registers: int) -> Iterator[RegisterTile]:
    """Yield the tiles that fit the registers: rectangles of the image times vectors."""
    for count, rows, columns in product(range(1, min(vectors, 8) + 1), range(1, height + 1), range(1, width + 1)):
        if rows * columns > registers:
            continue
        tile = RegisterTile(Split.of(height, rows).longest, Split.of(width, columns).longest, count)
        if tile.registers() <= registers and (tile.height == 1 or tile.width == width or width == 1):
            yield tile


def total_cycles(tile: RegisterTile, height: int, width: int, vectors: int, depth: int) -> float:
    """Return the estimated cycles of a height x width image of `vectors` output vectors in such tiles."""
    full, rest = divmod(vectors, tile.vectors)
    panels = [(tile.vectors, full)] + ([(rest, 1)] if rest else [])
    return sum(
        RegisterTile(rows, columns, count).cycles(depth) * many_rows * many_columns * many
        for rows, many_rows in Split.of(height, tile.height).sizes()
        for columns, many_columns in Split.of(width, tile.width).sizes()
        for count, many in panels
    )
