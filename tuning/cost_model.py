"""A learned cost model: what points of a kernel's space take of the time of its default.

FamilySeer (Zhang et al., arXiv 2201.00194) trains XGBoost on the speed of points, a model for each family of kernels.
Here what is learned is the logarithm of the time over that of the default, which is always among what is measured: how
fast a kernel is at all need not be known to choose a point of it, and where nothing is known all ratios are 1, so that
the default stays. What learned the error of the estimates instead chose worse than the tables (docs/design/tuning.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from backends.tensorir.space import Point
from tuning.features import Features, features_of
from tuning.known import KnownKernel
from tuning.trees import Matrix, Trees

_PARAMETERS = {
    "objective": "reg:squarederror", "max_depth": 5, "eta": 0.05, "subsample": 0.7, "colsample_bytree": 0.4,
    "min_child_weight": 8, "base_score": 0.0, "seed": 0, "nthread": 1,
}  # fmt: skip
_ROUNDS = 300
_DECLINE, _LEAST_WEIGHT = 3.0, 0.05
"""How fast the weight of a point falls with its distance from the best of its kernel, and how far: how slow a slow one
is need not be known well."""


@dataclass(frozen=True)
class MeasuredSpace:
    """Points of a kernel's space that were measured.

    Attributes:
        features: Of the points, the default's first.
        seconds: Of a call, of each.
    """

    features: Sequence[Features]
    seconds: Sequence[float]

    @staticmethod
    def of(known: KnownKernel, measured: Sequence[tuple[Point, float]]) -> MeasuredSpace:
        """Return the points of a kernel that were measured, the default first, with the seconds of each."""
        points = [point for point, _ in measured]
        features = features_of(known.choices.space, known.task.tensors, points)
        return MeasuredSpace(features, [seconds for _, seconds in measured])


@dataclass(frozen=True)
class CostModel:
    """Trees over the features of a point, and by how much they differ from the default's.

    Attributes:
        names: Of the features, in the order of the trees.
        trees: XGBoost's own JSON.
    """

    names: tuple[str, ...]
    trees: str

    @staticmethod
    def fit(spaces: Sequence[MeasuredSpace]) -> CostModel:
        """Return the model of what was measured of some kernels."""
        # Here, not above: what only asks a model does without it.
        import xgboost

        names = tuple(sorted({name for space in spaces for features in space.features for name in features}))
        seconds = [np.array(space.seconds) for space in spaces]
        labels = np.concatenate([np.log(times / times[0]) for times in seconds])
        weights = [np.maximum(_LEAST_WEIGHT, np.exp(-_DECLINE * (times / times.min() - 1))) for times in seconds]
        matrix = np.vstack([_matrix(space.features, names) for space in spaces])
        data = xgboost.DMatrix(matrix, label=labels, weight=np.concatenate(weights))
        return CostModel(names, xgboost.train(_PARAMETERS, data, _ROUNDS).save_raw("json").decode())

    def ratios(self, features: Sequence[Features]) -> list[float]:
        """Return what points are expected to take of the time of the first of them, which is the default.

        Raises:
            ValueError: The trees are none.
        """
        found = self._trees.predict(_matrix(features, self.names))
        return [float(ratio) for ratio in np.exp(found)]

    @cached_property
    def _trees(self) -> Trees:
        return Trees.from_json(self.trees, 2 * len(self.names))


def _matrix(features: Sequence[Features], names: Sequence[str]) -> Matrix:
    values = np.array([[each.get(name, np.nan) for name in names] for each in features], np.float32)
    return np.hstack([values, values - values[0]])
