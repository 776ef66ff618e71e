"""Outputs must mean something: finite, of unit scale, and different for different inputs."""

from __future__ import annotations

import numpy as np
import onnxruntime

from bench.zoo.model import ZooModel

# Probabilities over a thousand classes are about 1e-3; logits and features are about 1.
_SMALLEST, _LARGEST = 1e-3, 1e3
# Share of the output's scale by which two random inputs must differ, so that an error upstream is visible downstream.
_SENSITIVITY = 1e-4


def check(model: ZooModel) -> None:
    """Assert that every floating-point output of `model` is fit to be compared.

    Raises:
        AssertionError: Naming the output and the property it lacks.
    """
    session = onnxruntime.InferenceSession(model.path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    first = session.run(None, model.inputs(0))
    second = session.run(None, model.inputs(1))
    for name, one, other in zip(names, first, second, strict=True):
        if one.dtype.kind == "f":
            check_output(f"{model.name}: {name}", np.asarray(one, np.float64), np.asarray(other, np.float64))


def check_output(where: str, one: np.ndarray, other: np.ndarray) -> None:
    """Assert that an output, computed for two random inputs, is finite, of unit scale, and not the same for both."""
    assert np.isfinite(one).all(), f"{where} is not finite"
    assert np.isfinite(other).all(), f"{where} is not finite"
    scale = float(np.abs(one).max())
    assert _SMALLEST <= scale <= _LARGEST, f"{where} has the scale {scale:.3g}"
    difference = float(np.abs(one - other).max())
    assert difference >= _SENSITIVITY * scale, f"{where} differs by {difference:.3g} of {scale:.3g} between two inputs"
