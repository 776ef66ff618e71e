"""Tiles of rows of which only a call knows how many there are.

There are bodies for tiles of a few heights. All tiles but one or two are of the tallest; which serve the rest says a
table that is filled when the kernel is written. A tile never goes beyond the end: the last begins so much earlier, and
what it computes again comes out the same.

    5 rows: 5        7 rows: 4, 3        9 rows: 5, 4        127 rows: 20 of 6, then 4, 3
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby, pairwise
from math import inf
from operator import truediv

from tvm import tirx

from backends.cpu.costs import WEIGHT_VECTORS_PER_CYCLE
from backends.cpu.kernels.shared.extents import Extents
from backends.cpu.kernels.shared.register_tile import RegisterTile
from backends.cpu.machine import Machine
from backends.tensorir.emit import Expr, Nest, guard, int64

_LOSS = 1.1
"""How much longer any number of rows may take for want of a body of its height: LLVM takes time for each body."""

_NEAR = 1.05
"""How much longer than the fastest tiles those with less code may take, on the mean."""

_TYPICAL = (*range(1, 17), 32, 64, 128)
"""Numbers of rows by which tiles are compared."""

_LEAST, _TALLEST = 6, 8
"""Rows of the tallest tile: fewer read weights faster than L2 gives them, more take more bodies for what is left."""

_Tiles = tuple[int, int]
"""Heights of the tiles of the rest; 0 where there is none."""


@dataclass(frozen=True)
class Bodies:
    """How few bodies are enough.

    Attributes:
        loss: How much longer any number of rows may take for want of a body of its height.
        fill: Whether a body serves lower tiles too: it computes the last row several times.
        one_tile: Whether rows are one tile where a body is high enough: two read all weights twice.
    """

    loss: float = _LOSS
    fill: bool = False
    one_tile: bool = False

    def served_by(self, heights: Sequence[int], tallest: int) -> dict[int, int]:
        """Return the body of each height of a tile, where there are those of `heights`."""
        if not self.fill:
            return {height: height for height in heights}
        return {height: next(body for body in heights if body >= height) for height in range(1, tallest + 1)}

    def best_rest(self, heights: Sequence[int], costs: Sequence[float]) -> list[tuple[float, _Tiles]]:
        """Return, for each number of rows up to twice the tallest, the best one or two tiles and their cycles,
        infinitely many where it takes more tiles."""
        found: list[tuple[float, _Tiles]] = [(0.0, (0, 0))]
        cycles = {height: costs[body] for height, body in self.served_by(heights, heights[-1]).items()}
        least = {rows: next((each for each in cycles if each >= rows), 0) for rows in range(2 * heights[-1])}
        for rows in range(1, 2 * heights[-1] + 1):
            ways = [(cycles[rows], (rows, 0))] if rows in cycles else []
            if not (ways and self.one_tile):
                pairs = ((one, least[rows - one]) for one in cycles if one < rows)
                ways += [(cycles[one] + cycles[two], (one, two)) for one, two in pairs if 0 < two <= one]
            found.append(min(ways, default=(inf, (0, 0))))
        return found


@dataclass(frozen=True)
class RowTable:
    """Which tiles serve how many rows.

    Attributes:
        tile: The tallest.
        heights: Of all bodies, the tallest last.
        rest: By the number of rows that are left behind whole tiles.
        bodies: What serves a tile of another height.
    """

    tile: RegisterTile
    heights: tuple[int, ...]
    rest: tuple[_Tiles, ...]
    bodies: Bodies = Bodies()

    @staticmethod
    def choose(
        products: Sequence[Extents], machine: Machine, bodies: Bodies = Bodies(), most: int = _TALLEST,
        least: int = _LEAST,
    ) -> RowTable:  # fmt: skip
        """Return the table for products of the same rows: of those that take little longer than the fastest the one
        with the least code.

        Args:
            bodies: How few are enough.
            most: Rows of a tile at most.
            least: Rows of the tallest tile at least; fewer where the registers hold no more of two vectors.
        """
        depth, registers = products[0].steps, machine.vector_registers
        vectors = [each.vectors for each in products]
        lowest = min(least, _tallest(2, registers, most))
        widths = [width for width in range(1, min(vectors) + 1) if _tallest(width, registers, most) >= lowest]
        tables = [RowTable.of(width, depth, registers, bodies=bodies, most=most) for width in widths]
        costs = {table: [table.cycles(rows, vectors, depth) for rows in _TYPICAL] for table in tables}
        best = [min(found) for found in zip(*costs.values(), strict=True)]
        sums = {table: sum(map(truediv, found, best)) for table, found in costs.items()}
        near = [table for table in tables if sums[table] <= _NEAR * min(sums.values())]
        return min(near, key=lambda table: sum(table.heights) * table.tile.vectors)

    @staticmethod
    @cache
    def of(
        width: int, depth: int, registers: int, *, bodies: Bodies = Bodies(), most: int = _TALLEST
    ) -> RowTable:
        """Return the table of tiles of `width` vectors and up to `most` rows, with as few bodies as are enough."""
        tallest = _tallest(width, registers, most)
        return RowTable.by_costs(RegisterTile(tallest, 1, width), tuple(_costs(tallest, width, depth)), bodies)

    @staticmethod
    def by_costs(tile: RegisterTile, costs: Sequence[float], bodies: Bodies) -> RowTable:
        """Return the table of tiles up to `tile`, with as few bodies as are enough, where `costs` has the cycles of a
        tile of each height, from 0 on."""
        tallest = len(costs) - 1
        heights = tuple(range(1, tallest + 1))
        least = [cycles for cycles, _ in bodies.best_rest(heights, costs)]
        for height in range(tallest - 1, 0 if bodies.fill else 1, -1):
            fewer = tuple(each for each in heights if each != height)
            found = [cycles for cycles, _ in bodies.best_rest(fewer, costs)]
            if all(cycles <= bodies.loss * best for cycles, best in zip(found, least, strict=True)):
                heights = fewer
        rest = bodies.best_rest(heights, costs)
        alone = range(1, tallest + 1)
        shortest = next(rows for rows in alone if costs[-1] + rest[rows][0] <= rest[rows + tallest][0])
        pairs = tuple(pair for _, pair in rest[: tallest + shortest])
        return RowTable(tile, heights, pairs, bodies)

    def below(self, rows: int) -> RowTable:
        """Return the table with the bodies alone that fewer than `rows` rows take."""
        served = self.bodies.served_by(self.heights, self.heights[-1])
        taken = {served[height] for pair in self.rest[:rows] for height in pair if height}
        return replace(self, heights=tuple(sorted(taken)))

    def cycles(self, rows: int, vectors: Sequence[int], depth: int) -> float:
        """Return the estimated cycles of so many rows of products of so many vectors of channels."""
        tallest, width = self.tile.height, self.tile.vectors
        costs = _costs(tallest, width, depth)
        whole = max(0, rows - (len(self.rest) - tallest)) // tallest
        served = self.bodies.served_by(self.heights, tallest)
        rest = sum(costs[served[height]] for height in self.rest[rows - whole * tallest] if height)
        return sum(-(-each // width) for each in vectors) * (costs[-1] * whole + rest)

    def __str__(self) -> str:
        *lower, _ = self.heights
        return f"{self.tile}, of the rest {' '.join(map(str, lower))}" if lower else str(self.tile)


def _tallest(width: int, registers: int, most: int) -> int:
    """Return how many rows a tile of `width` vectors has, `most` at most."""
    return min((registers - width - 1) // width, most)


@cache
def _costs(tallest: int, width: int, depth: int) -> list[float]:
    """Return, by height, the estimated cycles of a tile that passes over a panel, whose weights L2 has at best."""
    weights = depth * width / WEIGHT_VECTORS_PER_CYCLE
    tiles = [RegisterTile(height, 1, width) for height in range(1, tallest + 1)]
    return [0.0, *(max(tile.cycles_in_l1(depth), weights) for tile in tiles)]


@dataclass(frozen=True)
class RowTiles:
    """Rows first..first+rows-1 in the tiles of a table.

    Attributes:
        whole: How many tiles of the tallest there are.
        rest: Heights of the tiles behind them.
    """

    table: RowTable
    first: Expr
    rows: Expr
    whole: Expr
    rest: tuple[Expr, Expr]

    @staticmethod
    def of(nest: Nest, table: RowTable, first: Expr, rows: Expr) -> RowTiles:
        """Return the tiles of these rows, how many of which there are put into `nest`."""
        height = table.heights[-1]
        shortest = len(table.rest) - height
        whole = nest.settle("whole_tiles", tirx.truncdiv(tirx.max(rows - shortest, int64(0)), int64(height)))
        left = nest.settle("rest", rows - whole * height)
        one, two = (
            nest.settle(f"rest{place}", look_up(left, [(rows, pair[place]) for rows, pair in enumerate(table.rest)]))
            for place in range(2)
        )
        return RowTiles(table, first, rows, whole, (one, two))

    @property
    def count(self) -> Expr:
        """How many tiles there are."""
        return self.whole + sum((tirx.Select(height > 0, int64(1), int64(0)) for height in self.rest), int64(0))

    def tile(self, nest: Nest, index: Expr) -> tuple[Expr, Expr]:
        """Return the height and the first row of tile `index`."""
        one, two = self.rest
        tallest = self.table.heights[-1]
        rest = tirx.Select(index == self.whole, one, two)
        height = nest.settle("height", tirx.Select(index < self.whole, int64(tallest), rest))
        return height, nest.settle("y", self.first + tirx.min(index * tallest, self.rows - height))

    def bodies(self, nest: Nest, height: Expr) -> Iterator[int]:
        """Yield each height that there is a body for, where a tile of `height` is written: it is lower where bodies
        serve lower tiles."""
        lowest, tallest = self.table.heights[0], self.table.heights[-1]
        for below, each in reversed(list(pairwise((0, *self.table.heights)))):
            served = [height > below] * (each > lowest) + [height <= each] * (each < tallest)
            asked = served if self.table.bodies.fill else [height == each]
            with guard(nest, tirx.all(*asked) if asked else None):
                yield each


def look_up(value: Expr, table: Sequence[tuple[int, int]]) -> Expr:
    """Return, as an expression, the number that `table` has for the last of its places that `value` is not below; for
    lower values that of the first place."""
    runs = [(next(run)[0], number) for number, run in groupby(table, key=lambda entry: entry[1])]
    found: Expr = int64(runs[0][1])
    for place, number in runs[1:]:
        found = tirx.Select(value >= place, int64(number), found)
    return found
