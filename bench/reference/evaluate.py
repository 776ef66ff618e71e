"""Runs a model in float64 with onnx's reference evaluator and our own windowed and normalising operators."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from bench.reference import normalize, windows
from bench.reference.widen import widen

_OPERATORS = [*windows.OPERATORS, *normalize.OPERATORS]


class NoReferenceError(Exception):
    """The model cannot be evaluated in float64; the text says why."""


def evaluate(path: Path, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the outputs of the ONNX file at `path`, every float32 computed as float64.

    Raises:
        NoReferenceError: The evaluator has no such operator, or failed in one.
    """
    model = onnx.load(path)
    feeds = {
        name: value.astype(np.float64) if value.dtype == np.float32 else value for name, value in inputs.items()
    }
    try:
        results = ReferenceEvaluator(widen(model), new_ops=_OPERATORS).run(None, feeds)
    except Exception as error:
        raise NoReferenceError(f"{type(error).__name__}: {error}") from error
    return {output.name: np.asarray(value) for output, value in zip(model.graph.output, results, strict=True)}
