"""The files of `texts/` by name: networks that TVM 0.17 printed, whose numbers `recorded.py` has, and one by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.frontends.relay.recorded import NAMES, TEXTS, recorded

NETWORKS = NAMES


def path(name: str) -> Path:
    """Return the path of a text."""
    return TEXTS / f"{name}.relay"


def text(name: str) -> str:
    """Return a text."""
    return path(name).read_text(encoding="utf-8")


def values(name: str) -> dict[str, np.ndarray]:
    """Return the inputs and the weights of a network."""
    model = recorded(name)
    return {**model.inputs, **model.params}


def weights(name: str) -> dict[str, np.ndarray]:
    """Return the weights of a network."""
    return recorded(name).params


def expected(name: str) -> dict[str, np.ndarray]:
    """Return what TVM 0.17 computed."""
    return {f"output_{index}": array for index, array in enumerate(recorded(name).outputs)}


def close(actual: np.ndarray, wanted: np.ndarray) -> bool:
    """Whether `actual` differs from `wanted` by no more than float32 does, as a share of the largest number."""
    return actual.shape == wanted.shape and bool(np.abs(actual - wanted).max() <= 2e-6 * np.abs(wanted).max())
