"""Finds blocks of a graph that follow each other unchanged, as the layers of a transformer do."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_PERIODS = 48
"""Distances that are tried: those between most nodes and the next one that is labelled alike."""
_LEAST_HIDDEN = 4
"""Nodes that stacking a repetition must hide to be worth a frame."""


@dataclass(frozen=True)
class Stack:
    """`count` copies of `period` nodes in a row, the first at position `start`."""

    start: int
    period: int
    count: int

    @property
    def end(self) -> int:
        """Position behind the last copy."""
        return self.start + self.period * self.count


Ids = npt.NDArray[np.int64]
Sources = Sequence[Sequence[int]]


def find_repeats(labels: Sequence[Hashable], sources: Sources) -> list[Stack]:
    """Return repetitions that do not overlap, those that hide most nodes first chosen, in order.

    Copies have the same labels, and read the same nodes inside themselves, of the copies before, or before all.

    Args:
        labels: What each node is, in an order in which nodes come after those they read.
        sources: Positions of the nodes that each one reads.
    """
    numbers: dict[Hashable, int] = {}
    kinds = [(label, len(reads)) for label, reads in zip(labels, sources, strict=True)]
    ids = np.array([numbers.setdefault(kind, len(numbers)) for kind in kinds], np.int64)
    chosen: list[Stack] = []
    for stack in sorted(_candidates(ids), key=lambda s: (s.period - s.end + s.start, s.period)):
        exact = _exact(_rotated(stack, ids, sources), sources)
        hidden = exact.period * (exact.count - 1)
        if hidden >= _LEAST_HIDDEN and all(exact.end <= s.start or s.end <= exact.start for s in chosen):
            chosen.append(exact)
    return sorted(chosen, key=lambda stack: stack.start)


def _candidates(ids: Ids) -> list[Stack]:
    return [stack for period in _periods(ids) for stack in _runs(ids, period)]


def _periods(ids: Ids) -> list[int]:
    order = np.argsort(ids, kind="stable")
    same = ids[order[1:]] == ids[order[:-1]]
    distances, counts = np.unique((order[1:] - order[:-1])[same], return_counts=True)
    best = np.argsort(-counts, kind="stable")
    return [int(distances[index]) for index in best if distances[index] > 1][:_PERIODS]


def _runs(ids: Ids, period: int) -> list[Stack]:
    """Return where the labels repeat with `period`; a run may be longer than its whole copies by less than one."""
    equal = np.concatenate([[False], ids[period:] == ids[:-period], [False]]).astype(np.int8)
    edges = np.flatnonzero(np.diff(equal))
    starts, lengths = edges[::2], edges[1::2] - edges[::2]
    return [
        Stack(int(start), period, int(length) // period + 1)
        for start, length in zip(starts, lengths, strict=True)
        if length >= period
    ]


def _rotated(stack: Stack, ids: Ids, sources: Sources) -> Stack:
    """Return the stack that starts where least is read from the copy before, of those with as many copies."""
    slack = 0
    while stack.end + slack < len(ids) and slack < stack.period - 1:
        if ids[stack.end + slack] != ids[stack.end + slack - stack.period]:
            break
        slack += 1

    def crossing(start: int) -> int:
        first = start + stack.period
        return len({s for node in range(first, first + stack.period) for s in sources[node] if s < first})

    return Stack(min(range(stack.start, stack.start + slack + 1), key=crossing), stack.period, stack.count)


def _exact(stack: Stack, sources: Sources) -> Stack:
    """Return the copies up to the first that reads other nodes than the second does."""
    second = stack.start + stack.period
    for copy in range(stack.count):
        shift = (copy - 1) * stack.period
        if not all(
            _reads_alike(sources[node], sources[node + shift], shift, copy, stack)
            for node in range(second, second + stack.period)
        ):
            return Stack(stack.start, stack.period, copy) if copy > 1 else Stack(stack.start, stack.period, 1)
    return stack


def _reads_alike(wanted: Sequence[int], found: Sequence[int], shift: int, copy: int, stack: Stack) -> bool:
    """Return whether a node reads what the same node of the second copy does; what the first reads from outside is
    its own affair."""
    inside = stack.start + stack.period
    for want, have in zip(wanted, found, strict=True):
        if want >= inside or (want >= stack.start and copy > 0):
            if have != want + shift:
                return False
        elif copy > 0 and have != want:
            return False
    return True
