"""Chooses the points of a schedule space to measure next, by Bayesian optimisation.

The objective is log(time of the point / time of the default). Its prior mean is the ratio of the estimates by cost
tables, averaged with that of the learned model of this machine if there is one for the family. The difference from the
prior is modelled as a Gaussian process over the axes of the space (Rasmussen & Williams, Gaussian Processes for Machine
Learning, 2006, 2.2), so a measured point says something about its neighbours. The first points are those with the best
prior; then those with the largest expected improvement (Jones et al., Efficient Global Optimization, 1998). Spaces have
a few thousand points at most, so all of them are evaluated; evolution over axes, which evaluates some, chose worse
(docs/design/tuning.md). The search is deterministic: the same records give the same points.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import erf, pi, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from backends.tensorir.space import Choices, Point, Space
from tuning.canonical import canonical
from tuning.features import features_of
from tuning.machine_model import MachineModel
from tuning.record import Record
from tuning.task import Tensors

Vector = npt.NDArray[np.float64]

_DEVIATION, _LENGTH, _NOISE = 0.3, 1.5, 0.02
"""The Gaussian process: standard deviation from the prior, length scale in octaves of an axis, and standard deviation
of two measurements of one point, all of log times. Of deviations from 0.1 to 0.4 and lengths from 1 to 3 these chose
best on 40 drawn kernels (docs/design/tuning.md); the deviations of single families are 0.03 to 0.28."""
LEAST_GAIN = 0.01
"""The search ends when no point is expected to gain more than this share of the best point's time."""
_FIRST = 4
"""The number of points that are chosen by the prior alone."""


@dataclass(frozen=True)
class Offer:
    """A point that is worth measuring.

    Attributes:
        point: The point.
        gain: The expected improvement on the best known point, as a share of its time.
    """

    point: Point
    gain: float


@dataclass(frozen=True)
class Forecast:
    """What was expected of a measured point: log(its time / time of the default).

    Attributes:
        record: The measurement.
        prior: The expectation before anything was measured.
        mean: The expectation given the measurements before.
    """

    record: Record
    prior: float
    mean: float


@dataclass(frozen=True)
class Search:
    """The search over one kernel's space.

    Attributes:
        points: All points of the space, the default first.
        prior: For each, the prior mean of log(its time / time of the default).
    """

    points: Sequence[Point]
    prior: Vector

    @staticmethod
    def of(choices: Choices, tensors: Tensors, machine: MachineModel | None = None) -> Search:
        """Return the search over the space of a kernel.

        Args:
            choices: The space.
            tensors: Dtypes and shapes of the kernel's parameters, for the learned model.
            machine: The learned model of this machine.
        """
        space: Space[Any] = choices.space
        points = [space.default, *(point for point in space if point != space.default)]
        cycles = np.array([max(point.cycles, 1.0) for point in points])
        prior = np.log(cycles / cycles[0])
        if machine is not None and machine.model is not None and choices.family in machine.errors:
            learned = np.log(machine.model.ratios(features_of(space, tensors, points)))
            prior = (prior + learned - learned[0]) / 2
        return Search(points, prior)

    def forecasts(self, before: Iterable[Record], records: Iterable[Record]) -> Iterator[Forecast]:
        """Yield what is expected of the points of `records`, given the records `before`. The default, and points that
        are not in the space, are left out."""
        wanted = [(self._places.get(canonical(record.point), 0), record) for record in records]
        if any(place for place, _ in wanted):
            mean = self._process(self._measured(before)).mean
            yield from (Forecast(each, float(self.prior[place]), float(mean[place])) for place, each in wanted if place)

    def offers(self, records: Iterable[Record], most: int, without: Collection[str] = ()) -> list[Offer]:
        """Return up to `most` points to measure, the most promising first; none if the search is over.

        Args:
            records: The records of the kernel.
            without: The keys (`key_of`) of points that must not be offered.
        """
        seen = self._seen(records)
        excluded = {0, *seen, *(self._places[key] for key in without if key in self._places)}
        may_be = np.ones(len(self.points), bool)
        may_be[list(excluded)] = False
        measured = self._measured(seen.values())
        process, best = self._process(measured), min(measured.values())
        found: list[Offer] = []
        while len(found) < most and may_be.any():
            gains = process.expected_gains(best)
            is_first = len(seen) + len(found) < _FIRST
            order = -process.mean if is_first else gains
            place = int(np.argmax(np.where(may_be, order, -np.inf)))
            if not is_first and gains[place] < LEAST_GAIN:
                break
            found.append(Offer(self.points[place], float(gains[place])))
            may_be[place] = False
            process = process.with_measured(place, float(process.mean[place]))  # as if it took the expected time
        return found

    def find(self, axes: Mapping[str, int]) -> Point | None:
        """Return the point with these choices; None if there is none."""
        place = self._places.get(canonical(axes))
        return None if place is None else self.points[place]

    def _process(self, measured: Mapping[int, float]) -> _Process:
        process = _Process.of(self._axes, self.prior)
        for place, value in measured.items():
            process = process.with_measured(place, value)
        return process

    def _seen(self, records: Iterable[Record]) -> dict[int, Record]:
        """Return the records of points of the space, by the indices of these."""
        known = {canonical(record.point): record for record in records}
        return {place: known[key] for key, place in self._places.items() if key in known}

    def _measured(self, records: Iterable[Record]) -> dict[int, float]:
        """Return the measured log times by the indices of points, the default's, 0, first."""
        seen = self._seen(records)
        return {0: 0.0, **{place: _log_ratio(record) for place, record in seen.items() if _is_measured(record)}}

    @cached_property
    def _places(self) -> Mapping[str, int]:
        return {key_of(point): place for place, point in enumerate(self.points)}

    @cached_property
    def _axes(self) -> Vector:
        """The coordinates of the points in the Gaussian process: log2 of their choices, and of the estimate."""
        chosen = [point.axes() for point in self.points]
        names = sorted({name for axes in chosen for name in axes})
        values = np.array([[axes.get(name, 0) for name in names] for axes in chosen], np.float64)
        cycles = np.array([[max(point.cycles, 1.0)] for point in self.points])
        return np.hstack([np.log2(1 + values), np.log2(cycles / cycles[0])])


def key_of(point: Point) -> str:
    """Return a text that identifies a point within its space."""
    return canonical(point.axes())


@dataclass(frozen=True)
class _Process:
    """A Gaussian process, conditioned on measured values one after the other: the Cholesky factor of their covariances
    grows by a row for each, so that one more costs a row and not all of them again.

    Attributes:
        axes: The coordinates of the points.
        mean: The posterior mean for each point.
        variance: The posterior variance, without noise.
        spread: For each measured value, the inverse of the factor times its covariances with the points.
    """

    axes: Vector
    mean: Vector
    variance: Vector
    spread: Vector

    @staticmethod
    def of(axes: Vector, prior: Vector) -> _Process:
        """Return the process of which nothing was measured."""
        return _Process(axes, prior, np.full(len(axes), _DEVIATION**2), np.zeros((0, len(axes))))

    def with_measured(self, place: int, value: float) -> _Process:
        """Return it given the value of one point more."""
        deviation = sqrt(self.variance[place] + _NOISE**2)
        row = (_likeness(self.axes, self.axes[place]) - self.spread[:, place] @ self.spread) / deviation
        mean = self.mean + row * (value - self.mean[place]) / deviation
        return _Process(self.axes, mean, self.variance - row**2, np.vstack([self.spread, row]))

    def expected_gains(self, best: float) -> Vector:
        """Return the expected improvements of all points on the best value."""
        better, deviation = best - self.mean, np.sqrt(np.maximum(self.variance, 1e-12))
        ratio = better / deviation
        below = np.array([(1 + erf(value)) / 2 for value in (ratio / sqrt(2)).tolist()])
        found: Vector = np.maximum(better * below + deviation * np.exp(-(ratio**2) / 2) / sqrt(2 * pi), 0.0)
        return found


def _likeness(axes: Vector, other: Vector) -> Vector:
    """Return the covariances of points with another one (Matern 5/2)."""
    distance = np.sqrt(5 * ((axes - other) ** 2).sum(axis=-1)) / _LENGTH
    found: Vector = _DEVIATION**2 * (1 + distance + distance**2 / 3) * np.exp(-distance)
    return found


def _is_measured(record: Record) -> bool:
    return not record.failed and record.ratio > 0


def _log_ratio(record: Record) -> float:
    return float(np.log(record.ratio))
