"""Where values lie in one piece of memory, which those share that are not needed at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_ALIGNMENT = 64
"""Bytes: the widest vector and the cache line."""


@dataclass(frozen=True)
class Lifetime:
    """What lies there.

    Attributes:
        size: Bytes.
        first, last: The steps between which it is needed, both included.
    """

    size: int
    first: int
    last: int

    def meets(self, other: Lifetime) -> bool:
        """Return whether both are needed in one step."""
        return self.first <= other.last and other.first <= self.last


def place_all(lifetimes: Sequence[Lifetime]) -> tuple[list[int], int]:
    """Return the offset of each, and the bytes of all: the largest first, each at the lowest place that is free for as
    long as it is needed."""
    offsets: dict[int, int] = {}
    for index in sorted(range(len(lifetimes)), key=lambda index: -lifetimes[index].size):
        taken = sorted(
            (offset, offset + lifetimes[other].size)
            for other, offset in offsets.items()
            if lifetimes[other].meets(lifetimes[index])
        )
        start = 0
        for begin, end in taken:
            if start + lifetimes[index].size <= begin:
                break
            start = max(start, -(-end // _ALIGNMENT) * _ALIGNMENT)
        offsets[index] = start
    ends = [offsets[index] + lifetime.size for index, lifetime in enumerate(lifetimes)]
    return [offsets[index] for index in range(len(lifetimes))], max(ends, default=0)
