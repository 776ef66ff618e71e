"""The best cover of a small problem by trying all, sharing nothing with the search but the problem."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from placement.cover.check import cover_seconds
from placement.cover.problem import CoverGraph, CoverProblem, SubgraphCandidate


def least_seconds(problem: CoverProblem) -> float:
    """Return what the best cover takes."""
    search = _Covers(problem)
    search.extend([], 0.0)
    return search.least


@dataclass
class _Covers:
    problem: CoverProblem
    least: float = math.inf

    def extend(self, chosen: list[SubgraphCandidate], seconds: float) -> None:
        """Try all that may be added to `chosen`, which take `seconds` without moves."""
        if seconds >= self.least:
            return
        covered = {operator for each in chosen for operator in each.operators}
        first = next((operator for operator in self.problem.graph.operators if operator not in covered), None)
        if first is None:
            if not has_cycle(self.problem.graph, [each.operators for each in chosen]):
                self.least = min(self.least, cover_seconds(self.problem, chosen))
            return
        for each in self.problem.candidates:
            if first in each.operators and not each.operators & covered and math.isfinite(each.seconds):
                self.extend([*chosen, each], seconds + each.seconds + self.problem.calls[each.backend])


def has_cycle(graph: CoverGraph, subgraphs: Sequence[frozenset[int]]) -> bool:
    """Return whether some of `subgraphs`, which are the graph, wait for each other."""
    home = {operator: index for index, subgraph in enumerate(subgraphs) for operator in subgraph}
    waits = {
        index: {home[source] for operator in subgraph for source in graph.sources[operator]} - {index}
        for index, subgraph in enumerate(subgraphs)
    }
    while waits:
        free = [index for index, others in waits.items() if not others & waits.keys()]
        if not free:
            return True
        for index in free:
            del waits[index]
    return False
