"""Which tasks no path orders."""

from __future__ import annotations

from collections.abc import Sequence

from placement.problem import PlacementProblem


def unordered_pairs(problem: PlacementProblem, tasks: Sequence[int]) -> list[tuple[int, int]]:
    """Return the pairs of `tasks`, the earlier in the graph first, between which there is no path in the graph.

    `tasks` are such that a path between two of them has no others on it, and are in the order of the graph.
    """
    bit = {task: 1 << index for index, task in enumerate(tasks)}
    before: dict[int, int] = {}
    pairs = []
    for index, task in enumerate(tasks):
        ancestors = 0
        for producer, _ in problem.producers[task]:
            if producer in bit:
                ancestors |= before[producer] | bit[producer]
        before[task] = ancestors
        pairs += [(other, task) for other in tasks[:index] if not ancestors & bit[other]]
    return pairs
