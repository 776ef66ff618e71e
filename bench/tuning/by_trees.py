"""Searches whose cost model is trees: of each kernel alone, shared by the kernels of a family, as FamilySeer has it
(Zhang et al., arXiv 2201.00194), or by all. All kernels are searched together, a few points of each at a time."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np

from bench.tuning.regret import Judged
from bench.tuning.replay import NOISE, ROUND
from tuning.cost_model import CostModel, MeasuredSpace

Group = Callable[[Judged], Hashable]
"""What the kernels that share a model have in common."""


def by_trees(kernels: Sequence[Judged], seed: int, most: int, group: Group) -> list[list[int]]:
    """Return the places of the points that a search measures of each kernel, in order, the default's first; `most` at
    most. The first are the best by the tables, the next the best by the model of what was measured before."""
    rng = np.random.default_rng(seed)
    seconds = [np.array(each.space.seconds) * np.exp(NOISE * rng.standard_normal(len(each.points))) for each in kernels]
    orders = [list(map(int, np.argsort(each.by_tables, kind="stable")[: 1 + ROUND])) for each in kernels]
    while any(len(order) < min(most, len(each.points)) for order, each in zip(orders, kernels, strict=True)):
        models = _models(kernels, orders, seconds, group)
        for kernel, order in zip(kernels, orders, strict=True):
            ratios = np.array(models[group(kernel)].ratios(kernel.space.features))
            ratios[order] = np.inf
            left = min(ROUND, most - len(order), len(kernel.points) - len(order))
            order += map(int, np.argsort(ratios, kind="stable")[: max(left, 0)])
    return [order[:most] for order in orders]


def _models(
    kernels: Sequence[Judged], orders: Sequence[Sequence[int]], seconds: Sequence[np.ndarray], group: Group
) -> dict[Hashable, CostModel]:
    known = dict[Hashable, list[MeasuredSpace]]()
    for kernel, order, took in zip(kernels, orders, seconds, strict=True):
        features = [kernel.space.features[place] for place in order]
        known.setdefault(group(kernel), []).append(MeasuredSpace(features, [float(took[place]) for place in order]))
    return {name: CostModel.fit(spaces) for name, spaces in known.items()}
