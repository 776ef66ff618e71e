"""Balanced splits of a loop: every tile within one of the others, so that no short tail tile is left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx


@dataclass(frozen=True)
class Split:
    """`extent` iterations in `count` tiles; the first `extent % count` of them are one longer.

    >>> Split.of(197, 14)  # 15 tiles: 2 of 14 rows and 13 of 13
    Split(extent=197, count=15)
    """

    extent: int
    count: int

    @staticmethod
    def of(extent: int, tile: int) -> Split:
        """Return the split with the fewest tiles that are no longer than `tile`."""
        return Split(extent, -(-extent // tile))

    @property
    def short(self) -> int:
        return self.extent // self.count

    @property
    def long_tiles(self) -> int:
        return self.extent % self.count

    @property
    def longest(self) -> int:
        return -(-self.extent // self.count)

    def sizes(self) -> list[tuple[int, int]]:
        """Return (size, how many) of the kinds of tiles, the longer first."""
        kinds = [(self.short + 1, self.long_tiles), (self.short, self.count - self.long_tiles)]
        return [(size, many) for size, many in kinds if many]

    def start(self, tile: Any) -> Any:
        """Return where a tile, a number or an expression, begins."""
        if not self.long_tiles:
            return tile * self.short
        if isinstance(tile, int):
            return tile * self.short + min(tile, self.long_tiles)
        return tile * self.short + tirx.min(tile, self.long_tiles)

    def size(self, tile: Any) -> Any:
        """Return how many iterations a tile, given as an expression, has."""
        if not self.long_tiles:
            return self.short
        return self.short + tirx.Select(tile < self.long_tiles, tirx.const(1, "int64"), tirx.const(0, "int64"))
