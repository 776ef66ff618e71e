"""Regression trees of XGBoost, read from its own JSON: a compilation needs neither its library, whose import takes
0.5 s, nor to hand a file that may hold anything to code that trusts it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float32]
_Places = npt.NDArray[np.intp]
_LEAF = -1
"""What XGBoost writes as the child of one."""
_MOST = 1e30
"""What thresholds and leaves are below: sums of them are float32."""


@dataclass(frozen=True)
class Trees:
    """A sum of trees, as tables of a row for each tree and a column for each of its nodes; a leaf is its own child.

    Attributes:
        left, right: Children. Those of a node have greater numbers, so each way down ends.
        feature: The column of the matrix that a node asks about.
        threshold: What is less goes left; of a leaf, what it adds to the sum.
        missing_left: Whether what is not known goes left.
    """

    left: _Places
    right: _Places
    feature: _Places
    threshold: Matrix
    missing_left: npt.NDArray[np.bool_]

    @staticmethod
    def from_json(text: str, features: int) -> Trees:
        """Return the trees over `features` columns of what `xgboost.Booster.save_raw("json")` wrote.

        Raises:
            ValueError: It did not, or not so many columns, or the model has a base.
        """
        try:
            learner = json.loads(text)["learner"]
            base = json.loads(learner["learner_model_param"]["base_score"])
            trees = [_arrays(tree, features) for tree in learner["gradient_booster"]["model"]["trees"]]
        except (KeyError, TypeError, AttributeError, IndexError, RecursionError, OverflowError) as error:
            raise ValueError(f"it is no model of XGBoost: {error}") from error
        if base not in (0, [0]) or not trees:
            raise ValueError("it has a base, or no trees")
        most = max(len(tree[0]) for tree in trees)
        return Trees(*(np.stack([np.resize(array, most) for array in arrays]) for arrays in zip(*trees, strict=True)))

    def predict(self, matrix: Matrix) -> Matrix:
        """Return the sum for each row of `matrix`, of which what is not known is not a number."""
        rows, every = np.arange(len(matrix))[:, None], np.arange(len(self.left))
        node = np.zeros((len(matrix), len(self.left)), np.intp)
        while True:
            value = matrix[rows, self.feature[every, node]]
            goes_left = np.where(np.isnan(value), self.missing_left[every, node], value < self.threshold[every, node])
            below = np.where(goes_left, self.left[every, node], self.right[every, node])
            if np.array_equal(below, node):
                found: Matrix = self.threshold[every, node].sum(axis=1)
                return found
            node = below


def _arrays(tree: Mapping[str, Any], features: int) -> tuple[npt.NDArray[Any], ...]:
    """Return the columns of a tree in the order of the fields of `Trees`."""
    left, right, feature, missing_left = (
        _whole(tree[name]) for name in ("left_children", "right_children", "split_indices", "default_left")
    )
    threshold = np.array(tree["split_conditions"], np.float64)
    own, is_leaf = np.arange(len(left)), left == _LEAF
    left, right = np.where(is_leaf, own, left), np.where(is_leaf, own, right)
    same = len(own) == len(right) == len(feature) == len(missing_left) == len(threshold) > 0
    if not same or threshold.ndim != 1 or not (abs(threshold) < _MOST).all():
        raise ValueError("its trees are not whole")
    for child in (left, right):
        if (child >= len(own)).any() or ((child <= own) & ~is_leaf).any():
            raise ValueError("its trees are none")
    if ((feature < 0) | (feature >= features)).any():
        raise ValueError("its trees ask for what is not there")
    return left, right, feature, threshold.astype(np.float32), missing_left.astype(bool)


def _whole(numbers: Sequence[int]) -> _Places:
    found = np.array(numbers)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise ValueError("its trees are not of whole numbers")
    return found.astype(np.intp)
