"""What a choice of points loses against the best that was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import nsmallest

import numpy as np

from backends.tensorir.space import Point
from bench.tuning.measure import Found
from fusion.machine_tuning.drawn import DrawnKernel
from tuning.alone import measured_points
from tuning.cost_model import CostModel, MeasuredSpace
from tuning.machine_model import MachineModel
from tuning.rank import MOST, better_place
from tuning.task import Environment

_FOLDS = 8
"""Parts of the kernels, each of which is asked of a model that learned the others."""

_NOWHERE = Environment("", "", 1, {})

Order = Callable[["Judged"], Sequence[float]]
"""What a choice goes by, for each point of a kernel: the least comes first."""


@dataclass(frozen=True)
class Judged:
    """A kernel with what its points took.

    Attributes:
        name: Of its workload.
        family: Its template.
        points: That were measured, the default first.
        cycles: Estimates of the points, the default's first.
        space: Features and seconds, in the same order.
    """

    name: str
    family: str
    points: Sequence[Point]
    cycles: Sequence[float]
    space: MeasuredSpace

    @cached_property
    def by_tables(self) -> Sequence[float]:
        """What the tables go by: the default, then the estimates."""
        return [0.0, *self.cycles[1:]]

    def regret(self, order: Sequence[float], tries: int) -> float:
        """Return how much longer than the best point the best of the first `tries` takes, as a share."""
        return self.regret_of(np.argsort(order, kind="stable")[:tries])

    def regret_of(self, places: Sequence[int] | np.ndarray) -> float:
        """Return how much longer than the best point the best of some takes, as a share."""
        seconds = np.array(self.space.seconds)
        return float(seconds[np.asarray(places)].min() / seconds.min() - 1)


def judged(kernels: Sequence[DrawnKernel], found: Found) -> Iterator[Judged]:
    """Yield the kernels of which the default and others were measured."""
    for kernel in kernels:
        known = kernel.question.known
        measured = measured_points(known, found.get(known.task.key, ()))
        if measured:
            points = [point for point, _ in measured]
            yield Judged(
                name=kernel.workload.name,
                family=known.choices.family,
                points=points,
                cycles=[point.cycles for point in points],
                space=MeasuredSpace.of(known, measured),
            )


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


def by_machine_models(kernels: Sequence[Judged]) -> list[Sequence[float]]:
    """Return what `effort="fast"` goes by with a model of this machine that has not seen the kernel: the point that it
    takes in the place of the default, if any, and then the tables."""
    folds = np.random.default_rng(0).permutation(len(kernels)) % _FOLDS
    orders = [kernel.by_tables for kernel in kernels]
    for fold in range(_FOLDS):
        learned = dict[str, list[MeasuredSpace]]()
        for kernel, its in zip(kernels, folds, strict=True):
            if its != fold:
                learned.setdefault(kernel.family, []).append(kernel.space)
        machine = MachineModel.fit(learned, _NOWHERE, 0.0)
        for place, its in enumerate(folds):
            if its == fold:
                orders[place] = _as_ranked(kernels[place], machine)
    return orders


def _as_ranked(kernel: Judged, machine: MachineModel) -> Sequence[float]:
    others = nsmallest(MOST, range(1, len(kernel.cycles)), key=kernel.cycles.__getitem__)
    places = [0, *others]
    chosen = places[better_place(kernel.family, [kernel.space.features[place] for place in places], machine)]
    return [-1.0 if place == chosen else found for place, found in enumerate(kernel.by_tables)]


def _model(kernels: Sequence[Judged]) -> CostModel | None:
    return CostModel.fit([kernel.space for kernel in kernels]) if kernels else None
