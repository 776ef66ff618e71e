"""Spaces with fewer values of their axes, so that whole ones can be measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from backends.tensorir.space import Point, Space
from fusion.machine_tuning.drawn import DrawnKernel


def with_whole_space(kernel: DrawnKernel, most: int) -> DrawnKernel:
    """Return a kernel with the question what all points take of its space, thinned to `most` points."""
    return replace(kernel, question=replace(kernel.question, points=thinned(kernel.question.known.choices.space, most)))


def thinned(space: Space[Point], most: int) -> list[Point]:
    """Return the points beside the default that are left when every second value of the axis with most values is taken
    away, the default's not, until there are `most` points: neighbours are as in the whole space, only further apart."""
    points, default = list(space), space.default.axes()
    while len(points) > most:
        values = {name: sorted({point.axes()[name] for point in points}) for name in _axes(points)}
        name = max(values, key=lambda name: (len(values[name]), name))
        if len(values[name]) == 1:
            break
        first = values[name].index(default[name]) % 2 if name in default else 0
        kept = set(values[name][first::2])
        points = [point for point in points if point.axes()[name] in kept]
    return [point for point in points if point != space.default]


def _axes(points: Sequence[Point]) -> list[str]:
    """Return the axes that all points have."""
    return [name for name in points[0].axes() if all(name in point.axes() for point in points)]
