"""Sets of the parts that a backend runs as a call each, which may have operators in common, as candidates for covers.

Collage (arXiv 2111.00655) makes a candidate of each match of each pattern. Here a match is rarely all of a kernel of
ours, and a cover is one of kernels: so a candidate is some matches without an operator in common, and the kernels
around them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from placement.cover.problem import CoverGraph
from placement.cover.tables import bits_of, mask_of

_MOST_WITH = 32
"""Sets of which one part is the first; kernels of ResNet-50 and BERT-base have fewer of oneDNN's matches."""


@dataclass(frozen=True)
class RegionCandidate:
    """What a backend is asked about.

    Attributes:
        groups: Positions of groups of operators.
        parts: The operators in these groups that it runs, as a call each, and the host the others; None where it runs
            all of them as one.
    """

    groups: frozenset[int]
    parts: tuple[frozenset[int], ...] | None = None


_Set = tuple[tuple[int, ...], int]
"""Positions of parts in ascending order, and as bits the groups around them."""


class PartSets:
    """The sets of `parts`, of operators of `graph`, that may be chosen together: no operator is in two of a set, and
    none waits for itself. `groups` are those of `small`, the graph of them."""

    def __init__(
        self,
        graph: CoverGraph,
        small: CoverGraph,
        groups: Sequence[frozenset[int]],
        parts: Sequence[frozenset[int]],
    ) -> None:
        self._below, self._around = _Paths(graph), _Paths(small)
        home = {operator: at for at, group in enumerate(groups) for operator in group}
        masks = [(part, mask_of(part)) for part in parts]
        self._parts = [(part, mask) for part, mask in masks if not self._below.between(mask) & ~mask]
        self._masks = [mask for _, mask in self._parts]
        self._before = [self._below.before(mask) & ~mask for mask in self._masks]
        self._regions = [self._around.hull(mask_of(frozenset(home[each] for each in part))) for part, _ in self._parts]
        self._in_group: dict[int, list[int]] = {}
        for at, region in enumerate(self._regions):
            for group in bits_of(region):
                self._in_group.setdefault(group, []).append(at)

    def candidates(self) -> list[RegionCandidate]:
        """Return the sets of which each part touches a group of the others, up to `_MOST_WITH` of each first part, the
        smallest sets first; and, however large, those of the parts of which each is taken in the order given unless one
        before it forbids that."""
        found: dict[tuple[int, ...], int] = {}
        for first in range(len(self._parts)):
            found.update(self._beginning_with(first))
        found.update(self._joined(self._first_ones()))
        return [
            RegionCandidate(frozenset(bits_of(region)), tuple(self._parts[at][0] for at in chosen))
            for chosen, region in found.items()
        ]

    def _beginning_with(self, first: int) -> Iterator[_Set]:
        """Yield sets of which a part is the first, and the region of each."""
        waiting, seen = deque[_Set]([((first,), self._regions[first])]), set[tuple[int, ...]]()
        for _ in range(_MOST_WITH):
            if not waiting:
                return
            chosen, region = waiting.popleft()
            yield chosen, region
            for other in sorted({at for group in bits_of(region) for at in self._in_group[group] if at > first}):
                more = tuple(sorted((*chosen, other)))
                if more not in seen and len(seen) < _MOST_WITH and self._fits(other, chosen):
                    seen.add(more)
                    waiting.append((more, self._around.hull(region | self._regions[other])))

    def _first_ones(self) -> list[int]:
        chosen: list[int] = []
        for part in range(len(self._parts)):
            if self._fits(part, chosen):
                chosen.append(part)
        return chosen

    def _joined(self, chosen: Sequence[int]) -> Iterator[_Set]:
        """Yield parts that may be chosen together as sets that have no group in common."""
        sets: list[_Set] = [((part,), self._regions[part]) for part in chosen]
        done: list[_Set] = []
        while sets:
            parts, region = sets.pop()
            touching = [each for each in (*sets, *done) if each[1] & region]
            if not touching:
                done.append((parts, region))
                continue
            sets = [each for each in sets if each not in touching]
            done = [each for each in done if each not in touching]
            for others, theirs in touching:
                parts, region = (*parts, *others), region | theirs
            sets.append((tuple(sorted(parts)), self._around.hull(region)))
        yield from done

    def _fits(self, part: int, chosen: Sequence[int]) -> bool:
        """Return whether a part has no operator of those chosen, and none of all then waits for itself."""
        if any(self._masks[part] & self._masks[other] for other in chosen):
            return False
        seen, waiting = set[int](), [part]
        while waiting:
            before = self._before[waiting.pop()]
            if before & self._masks[part]:
                return False
            found = [other for other in chosen if other not in seen and before & self._masks[other]]
            seen.update(found)
            waiting += found
        return True


class _Paths:
    """What is before and behind sets of operators, as bits."""

    def __init__(self, graph: CoverGraph) -> None:
        self._sources = graph.sources

    @cached_property
    def _all_before(self) -> list[int]:
        found: list[int] = []
        for sources in self._sources:
            found.append(mask_of(sources) | _union(found, mask_of(sources)))
        return found

    @cached_property
    def _all_behind(self) -> list[int]:
        found = [0] * len(self._sources)
        for operator in reversed(range(len(found))):
            for source in self._sources[operator]:
                found[source] |= found[operator] | 1 << operator
        return found

    def before(self, operators: int) -> int:
        """Return what some operators wait for."""
        return _union(self._all_before, operators)

    def between(self, operators: int) -> int:
        """Return what is on paths from some operators to some of these."""
        return self.before(operators) & _union(self._all_behind, operators)

    def hull(self, operators: int) -> int:
        """Return some operators with all that is on paths between them."""
        return operators | self.between(operators)


def _union(sets: Sequence[int], of: int) -> int:
    found = 0
    for at in bits_of(of):
        found |= sets[at]
    return found
