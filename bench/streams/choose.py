"""Which calls of a stream stand for all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bench.streams.result import Shapes


def by_size(calls: Sequence[Shapes]) -> list[int]:
    """Return the places of the calls whose shapes are new there, by the number of elements of their inputs."""
    distinct = [place for place, shapes in enumerate(calls) if shapes not in calls[:place]]
    return sorted(distinct, key=lambda place: sum(map(math.prod, calls[place].values())))


def spread(places: Sequence[int], most: int) -> list[int]:
    """Return at most so many of `places`: the middle of each of as many parts of equal length, so that their quantiles
    are those of all."""
    count = min(most, len(places))
    return [places[(2 * part + 1) * len(places) // (2 * count)] for part in range(count)]
