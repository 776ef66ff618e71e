"""Small ONNX models with open dimensions, and arrays for them at given sizes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx
import onnxruntime
from onnx.helper import make_node as node

from tests.module.small_models import FLOAT, INT64, Value, model

POSITIONS = 512
"""Rows of the table of `text`: no longer text has a position."""
_WORDS = 50


@dataclass(frozen=True)
class OpenModel:
    """A model; its inputs of whole numbers are of words."""

    proto: onnx.ModelProto

    def arrays(self, **sizes: int) -> dict[str, np.ndarray]:
        """Return an array for each input with the dimensions of these names, the same each time."""
        rng = np.random.default_rng(list(sizes.values()))
        found: dict[str, np.ndarray] = {}
        for value in self.proto.graph.input:
            kind = value.type.tensor_type
            shape = [sizes[dim.dim_param] if dim.dim_param else dim.dim_value for dim in kind.shape.dim]
            words = kind.elem_type == INT64
            found[value.name] = rng.integers(0, _WORDS, shape) if words else rng.standard_normal(shape, np.float32)
        return found

    def expected(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return what ONNX Runtime does."""
        names = [value.name for value in self.proto.graph.output]
        return dict(zip(names, self._session.run(names, arrays), strict=True))

    @cached_property
    def _session(self) -> onnxruntime.InferenceSession:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        return onnxruntime.InferenceSession(self.proto.SerializeToString(), options)


def text() -> OpenModel:
    """Return layer_norm(words[ids] + positions[:length]) of ids[batch, length], and its softmax."""
    nodes = [
        node("Shape", ["ids"], ["length"], start=1, end=2),
        node("Slice", ["positions", "zero", "length"], ["used"]),
        node("Gather", ["words", "ids"], ["found"]),
        node("Add", ["found", "used"], ["sum"]),
        node("LayerNormalization", ["sum", "scale", "shift"], ["even"], axis=-1),
        node("Softmax", ["even"], ["y"], axis=-1),
    ]
    outputs: list[Value] = [(name, FLOAT, ["batch", "length", 16]) for name in ("even", "y")]
    weights = {
        "words": _normal(_WORDS, 16), "positions": _normal(POSITIONS, 16), "zero": np.zeros(1, np.int64),
        "scale": _normal(16), "shift": _normal(16),
    }  # fmt: skip
    return OpenModel(model(nodes, [("ids", INT64, ["batch", "length"])], outputs, weights))


def image() -> OpenModel:
    """Return relu(conv(x[batch, 3, 8, 8])), its mean over each image, and that times a matrix."""
    nodes = [
        node("Conv", ["x", "kernel"], ["seen"], pads=[1, 1, 1, 1]),
        node("Relu", ["seen"], ["kept"]),
        node("GlobalAveragePool", ["kept"], ["mean"]),
        node("Flatten", ["mean"], ["flat"]),
        node("MatMul", ["flat", "matrix"], ["y"]),
    ]
    weights = {"kernel": _normal(16, 3, 3, 3), "matrix": _normal(16, 5)}
    return OpenModel(model(nodes, [("x", FLOAT, ["batch", 3, 8, 8])], [("y", FLOAT, ["batch", 5])], weights))


def two_inputs(width: int = 8) -> OpenModel:
    """Return relu(a[rows, width] + b[rows, width])."""
    nodes = [node("Add", ["a", "b"], ["sum"]), node("Relu", ["sum"], ["y"])]
    inputs: list[Value] = [(name, FLOAT, ["rows", width]) for name in "ab"]
    return OpenModel(model(nodes, inputs, [("y", FLOAT, ["rows", width])]))


def _normal(*shape: int) -> np.ndarray:
    return (np.random.default_rng(list(shape)).standard_normal(shape) / 3).astype(np.float32)
