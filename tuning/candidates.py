"""Which points of a template's space become candidates for a kernel, to be measured."""

from __future__ import annotations

from dataclasses import fields
from operator import attrgetter
from typing import Any

from backends.tensorir.space import Point, Space


def promising_points(space: Space[Any], most: int, alike: int) -> list[Point]:
    """Return at most `most` points beside the default, the best by estimate of those that differ enough.

    Those are the best point of each register tile, and of the default's the `alike` best others.
    """
    best: dict[object, Point] = {}
    near: list[Point] = []
    for point in space:
        if point == space.default:
            continue
        tile = _tile(point)
        if tile == _tile(space.default):
            near.append(point)
        elif tile not in best or point.cycles < best[tile].cycles:
            best[tile] = point
    near = sorted(near, key=attrgetter("cycles"))[:alike]
    far = sorted(best.values(), key=attrgetter("cycles"))[: most - len(near)]
    return sorted([*near, *far], key=attrgetter("cycles"))


def _tile(point: Any) -> object:
    """Return what a point chooses beside numbers, its register tiles; where it has nothing else, its first number."""
    values = [getattr(point, field.name) for field in fields(point)]
    tiles = [value for value in values if not isinstance(value, int | float)]
    return type(point), *(tiles or values[:1])
