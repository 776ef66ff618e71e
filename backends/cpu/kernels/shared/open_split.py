"""Balanced splits of a loop whose extent only a call knows."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx

from backends.tensorir.emit import Expr, Nest, int64


@dataclass(frozen=True)
class OpenSplit:
    """`Split` at the call: the first `long_tiles` of `count` tiles have one iteration more than `short`."""

    count: Expr
    short: Expr
    long_tiles: Expr

    @staticmethod
    def of(nest: Nest, extent: Expr, tile: int) -> OpenSplit:
        """Return the split with the fewest tiles that are no longer than `tile`."""
        return OpenSplit.into(nest, extent, ceil_div(extent, tile))

    @staticmethod
    def into(nest: Nest, extent: Expr, count: Expr) -> OpenSplit:
        """Return the split into `count` tiles, which may be none of nothing."""
        count = nest.keep("tiles", int64(count))
        short = nest.keep("short", tirx.floordiv(int64(extent), tirx.max(count, 1)))
        return OpenSplit(count, short, nest.keep("long_tiles", int64(extent) - short * count))

    def start(self, tile: Expr) -> Expr:
        """Return where a tile begins."""
        return tile * self.short + tirx.min(tile, self.long_tiles)

    def size(self, tile: Expr) -> Expr:
        """Return how many iterations a tile has."""
        return self.short + tirx.Select(tile < self.long_tiles, int64(1), int64(0))


def ceil_div(extent: Expr, tile: int) -> Expr:
    """Return how many tiles cover an extent."""
    return tirx.floordiv(int64(extent) + (tile - 1), tile)
