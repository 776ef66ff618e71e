"""What a choice of points loses against the best that was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bench.tuning.drawn import DrawnKernel
from bench.tuning.measure import Found
from tuning.canonical import canonical
from tuning.cost_model import CostModel, MeasuredSpace
from tuning.features import features_of

_FOLDS = 8
"""Parts of the kernels, each of which is asked of a model that learned the others."""

Order = Callable[["Judged"], Sequence[float]]
"""What a choice goes by, for each point of a kernel: the least comes first."""


@dataclass(frozen=True)
class Judged:
    """A kernel with what its points took.

    Attributes:
        name: Of its workload.
        family: Its template.
        cycles: Estimates of the points, the default's first.
        space: Features and seconds, in the same order.
    """

    name: str
    family: str
    cycles: Sequence[float]
    space: MeasuredSpace

    @cached_property
    def by_tables(self) -> Sequence[float]:
        """What the tables go by: the default, then the estimates."""
        return [0.0, *self.cycles[1:]]

    def regret(self, order: Sequence[float], tries: int) -> float:
        """Return how much longer than the best point the best of the first `tries` takes, as a share."""
        seconds = np.array(self.space.seconds)
        chosen = seconds[np.argsort(order, kind="stable")[:tries]].min()
        return float(chosen / seconds.min() - 1)


def judged(kernels: Sequence[DrawnKernel], found: Found) -> Iterator[Judged]:
    """Yield the kernels of which the default and others were measured."""
    for kernel in kernels:
        known = kernel.question.known
        seconds = {canonical(record.point): record.seconds for record in found.get(known.task.key, ())}
        default = known.choices.space.default
        others = [point for point in known.choices.space if point != default and canonical(point.axes()) in seconds]
        if others and canonical(default.axes()) in seconds:
            points = [default, *others]
            took = [seconds[canonical(point.axes())] for point in points]
            space = MeasuredSpace(features_of(known, points), took)
            yield Judged(kernel.workload.name, known.choices.family, [point.cycles for point in points], space)


def by_models(kernels: Sequence[Judged], *, families: bool) -> list[Sequence[float]]:
    """Return what models go by for each kernel, none of which has seen it: one for all, or one for each family."""
    folds = np.random.default_rng(0).permutation(len(kernels)) % _FOLDS
    orders: list[Sequence[float]] = [kernel.by_tables for kernel in kernels]
    for fold in range(_FOLDS):
        learned = [kernel for kernel, its in zip(kernels, folds, strict=True) if its != fold]
        models = dict[str, CostModel | None]()
        for place, (kernel, its) in enumerate(zip(kernels, folds, strict=True)):
            if its == fold:
                family = kernel.family if families else ""
                if family not in models:
                    models[family] = _model([each for each in learned if not families or each.family == family])
                model = models[family]
                if model is not None:
                    orders[place] = [1.0, *model.ratios(kernel.space.features)[1:]]
    return orders


def _model(kernels: Sequence[Judged]) -> CostModel | None:
    return CostModel.fit([kernel.space for kernel in kernels]) if kernels else None
