"""The points worth measuring are the best of each tile and some more like the default."""

from __future__ import annotations

from dataclasses import dataclass

from backends.tensorir.space import Space
from tuning.candidates import promising_points


@dataclass(frozen=True)
class Tile:
    width: int


@dataclass(frozen=True)
class Cut:
    tile: Tile
    chunks: int
    cycles: float


def test_one_point_of_each_other_tile_and_some_of_the_default_s() -> None:
    points = [Cut(Tile(width), chunks, 10.0 * width + chunks) for width in range(5) for chunks in range(4)]
    space = Space(points[4], lambda: iter(points))
    found = promising_points(space, 4, 2)
    assert [(point.tile.width, point.chunks) for point in found] == [(0, 0), (1, 1), (1, 2), (2, 0)]  # type: ignore[attr-defined]


def test_a_space_of_one_point_has_no_candidates() -> None:
    point = Cut(Tile(1), 1, 1.0)
    assert promising_points(Space(point, lambda: iter([point])), 4, 2) == []
