"""Operators whose older versions onnx's reference evaluator computes by their newest definition, or wrongly."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

# From this opset on, Softmax works along one axis; before, over all axes from `axis` on, flattened.
_ONE_AXIS_OPSET = 13


class BatchNormalization(OpRun):  # type: ignore[misc]
    """With the moments given, or in training mode with those of `x` [N, C, ...], as weights are standardised. The
    evaluator's own always takes those of `x` for opsets 9 to 13."""

    def _run(
        self, x: np.ndarray, scale: np.ndarray, bias: np.ndarray, mean: np.ndarray, var: np.ndarray, **options: Any
    ) -> tuple[np.ndarray, ...]:
        moments: tuple[np.ndarray, ...] = ()
        if options.get("training_mode"):
            axes, kept = (0, *range(2, x.ndim)), options["momentum"]
            found = x.mean(axes), x.var(axes)
            moments = tuple(old * kept + new * (1 - kept) for old, new in zip((mean, var), found, strict=True))
            mean, var = found
        scale, bias, mean, var = (value.reshape(1, -1, *(1,) * (x.ndim - 2)) for value in (scale, bias, mean, var))
        return ((x - mean) / np.sqrt(var + options["epsilon"]) * scale + bias, *moments)


class Softmax(OpRun):  # type: ignore[misc]
    """exp(x - max) / sum, along one axis or, in older opsets, over a flattened tail."""

    def _run(self, x: np.ndarray, **options: Any) -> tuple[np.ndarray]:
        given = next((a.i for a in self.onnx_node.attribute if a.name == "axis"), None)
        if self.run_params["opsets"][self.onnx_node.domain] >= _ONE_AXIS_OPSET:
            return (_softmax(x, -1 if given is None else given),)
        axis = (1 if given is None else given) % max(x.ndim, 1)
        flat = x.reshape(math.prod(x.shape[:axis]), -1)
        return (_softmax(flat, 1).reshape(x.shape),)


class LogSoftmax(Softmax):
    """The logarithm of Softmax."""

    def _run(self, x: np.ndarray, **options: Any) -> tuple[np.ndarray]:
        (shares,) = super()._run(x, **options)
        return (np.log(shares),)


def _softmax(x: np.ndarray, axis: int) -> np.ndarray:
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis=axis, keepdims=True))


OPERATORS = (BatchNormalization, Softmax, LogSoftmax)
