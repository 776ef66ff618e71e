"""Which points of a kernel's space to measure next, given what was measured of it: Bayesian optimisation.

How the logarithm of a point's time over that of the default differs from what was expected of it is taken for a
Gaussian process over the axes of the space (Rasmussen & Williams, Gaussian Processes for Machine Learning, 2006, 2.2),
so that a measured point says something of its neighbours. What is expected are the ratios of the tables; where a model
of this machine ranks the family, the mean of both. The first points are those that are expected to be fastest; then
those of which most improvement on the best is expected (Jones et al., Efficient Global Optimization, 1998). Spaces have
some thousand points at most, so each of them is asked; evolution over axes, which asks some, chose worse
(docs/design/tuning.md). The same records give the same points.
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
"""How far logarithms of times are from what is expected, over how many octaves of an axis that changes, and how far two
measurements of a point are apart: on 40 drawn kernels (docs/design/tuning.md), of 0.1 to 0.4 and 1 to 3 those that
chose best; the deviations of families are 0.03 to 0.28."""
LEAST_GAIN = 0.01
"""Of the time of the best point: where none is expected to gain more, the search is over."""
_FIRST = 4
"""Points that are offered before anything was measured, by what is expected alone."""


@dataclass(frozen=True)
class Offer:
    """A point that is worth measuring.

    Attributes:
        gain: The improvement on the best known point that is expected of it, as a share of that one's time.
    """

    point: Point
    gain: float


@dataclass(frozen=True)
class Forecast:
    """What was expected of a point that a record is of: logarithms of its time over that of the default.

    Attributes:
        prior: Before anything was measured.
        mean: Given what had been.
    """

    record: Record
    prior: float
    mean: float


@dataclass(frozen=True)
class Search:
    """The search over one kernel's space.

    Attributes:
        points: All of it, the default first.
        prior: Logarithms of the times that are expected of them, over that of the default.
    """

    points: Sequence[Point]
    prior: Vector

    @staticmethod
    def of(choices: Choices, tensors: Tensors, machine: MachineModel | None = None) -> Search:
        """Return the search over what a template leaves open for a kernel with these parameters."""
        space: Space[Any] = choices.space
        points = [space.default, *(point for point in space if point != space.default)]
        cycles = np.array([max(point.cycles, 1.0) for point in points])
        prior = np.log(cycles / cycles[0])
        if machine is not None and machine.model is not None and choices.family in machine.errors:
            learned = np.log(machine.model.ratios(features_of(space, tensors, points)))
            prior = (prior + learned - learned[0]) / 2
        return Search(points, prior)

    def forecasts(self, before: Iterable[Record], records: Iterable[Record]) -> Iterator[Forecast]:
        """Yield what is expected of the points of some `records`, given others; of those beside the default that are in
        the space."""
        wanted = [(self._places.get(canonical(record.point), 0), record) for record in records]
        if any(place for place, _ in wanted):
            mean, _ = _Process(self._axes, self.prior, self._measured(before)).predict()
            yield from (Forecast(each, float(self.prior[place]), float(mean[place])) for place, each in wanted if place)

    def offers(self, records: Iterable[Record], most: int, without: Collection[str] = ()) -> list[Offer]:
        """Return up to `most` points to measure, those first that are worth most; none where the search is over.

        Args:
            records: Of the kernel's task.
            without: Keys of points (`key_of`) that are not to be offered.
        """
        seen = self._seen(records)
        excluded = {0, *seen, *(self._places[key] for key in without if key in self._places)}
        measured = self._measured(seen.values())
        process = _Process(self._axes, self.prior, measured)
        found: list[Offer] = []
        while len(found) < min(most, len(self.points) - len(excluded)):
            mean, deviation = process.predict()
            gains = _expected_gains(min(measured.values()) - mean, deviation)
            is_first = len(seen) + len(found) < _FIRST
            order = -mean if is_first else gains
            place = max((place for place in range(len(order)) if place not in excluded), key=order.__getitem__)
            if not is_first and gains[place] < LEAST_GAIN:
                break
            found.append(Offer(self.points[place], float(gains[place])))
            excluded.add(place)
            process = process.with_measured(place, float(mean[place]))  # as if it had been, and found as expected
        return found

    def _seen(self, records: Iterable[Record]) -> dict[int, Record]:
        """Return those of `records` that are of points of the space, by the places of these."""
        known = {canonical(record.point): record for record in records}
        return {place: known[key] for key, place in self._places.items() if key in known}

    def _measured(self, records: Iterable[Record]) -> dict[int, float]:
        """Return the logarithms of what points took, the default's first."""
        seen = self._seen(records)
        return {0: 0.0, **{place: _log_ratio(record) for place, record in seen.items() if _is_measured(record)}}

    @cached_property
    def _places(self) -> Mapping[str, int]:
        return {key_of(point): place for place, point in enumerate(self.points)}

    @cached_property
    def _axes(self) -> Vector:
        """What makes points alike: logarithms of what they choose, and the one of the estimate."""
        chosen = [point.axes() for point in self.points]
        names = sorted({name for axes in chosen for name in axes})
        values = np.array([[axes.get(name, 0) for name in names] for axes in chosen], np.float64)
        cycles = np.array([[max(point.cycles, 1.0)] for point in self.points])
        return np.hstack([np.log2(1 + values), np.log2(cycles / cycles[0])])


def key_of(point: Point) -> str:
    """Return what tells a point from the others of its space."""
    return canonical(point.axes())


@dataclass(frozen=True)
class _Process:
    """A Gaussian process, of which some values were measured."""

    axes: Vector
    prior: Vector
    measured: Mapping[int, float]

    def with_measured(self, place: int, value: float) -> _Process:
        return _Process(self.axes, self.prior, {**self.measured, place: value})

    def predict(self) -> tuple[Vector, Vector]:
        """Return the mean and the deviation of each value."""
        places = list(self.measured)
        differs = np.array([value - self.prior[place] for place, value in self.measured.items()])
        near = _likeness(self.axes, self.axes[places])
        factor = np.linalg.cholesky(near[places] + _NOISE**2 * np.eye(len(places)))
        spread = np.linalg.solve(factor, near.T)
        mean = self.prior + spread.T @ np.linalg.solve(factor, differs)
        variance = _DEVIATION**2 - (spread**2).sum(axis=0)
        return mean, np.sqrt(np.maximum(variance, 1e-12))


def _likeness(axes: Vector, others: Vector) -> Vector:
    """Return the covariance of values (Matern's, with 5/2)."""
    squares = ((axes[:, None, :] - others[None, :, :]) ** 2).sum(axis=-1)
    distance = np.sqrt(5 * squares) / _LENGTH
    found: Vector = _DEVIATION**2 * (1 + distance + distance**2 / 3) * np.exp(-distance)
    return found


def _expected_gains(better: Vector, deviation: Vector) -> Vector:
    """Return the improvements that are expected, where the means are better by so much."""
    ratio = better / deviation
    below = np.array([(1 + erf(value / sqrt(2))) / 2 for value in ratio])
    found: Vector = np.maximum(better * below + deviation * np.exp(-(ratio**2) / 2) / sqrt(2 * pi), 0.0)
    return found


def _is_measured(record: Record) -> bool:
    return not record.failed and record.ratio > 0


def _log_ratio(record: Record) -> float:
    return float(np.log(record.ratio))
