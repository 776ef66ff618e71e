"""Operands that ONNX Runtime checks where the result has no elements: nothing was computed, and nothing was checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import fusion
from fusion.errors import ExecutionError
from tests.frontends.against_onnxruntime import onnxruntime_runs

pytestmark = pytest.mark.unoptimised

NOTHING = np.empty((4, 0), np.float32)
X = np.zeros((4, 3), np.float32)


def row(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


# Operator, its operands, its attributes, the declared shape of the result, the last operand in its right form.
CASES: dict[str, tuple[str, tuple[np.ndarray, ...], dict[str, Any], list[int] | None, np.ndarray]] = {
    "index": ("Gather", (NOTHING, row(9)), {}, [1, 0], row(-4)),
    "tuple of indices": ("ScatterND", (NOTHING, NOTHING[:1], row(9)[None]), {}, [4, 0], row(3)[None]),
    "length": ("ReverseSequence", (X[:, :2, None][:, :, :0], row(9, 1)), {}, [3, 2, 0], row(3, 1)),
    "feature": ("ArrayFeatureExtractor", (X[:0], row(3)), {}, [0, 1], row(2)),
    "divisor": ("Div", (row()[None], row(0)), {}, [1, 0], row(1)),
    "image": ("RoiAlign", (np.zeros((1, 0, 2, 2), "float32"), X[:1, [0, 0, 1, 1]], row(9)), {}, [1, 0, 1, 1], row(0)),
    "size": ("Slice", (X, row(0), row(1)), {}, [0, 3], row(0)),
    "step": ("Slice", (X, row(3), row(1), row(0), row(0)), {}, [0, 3], row(1)),
    "window": ("HannWindow", (np.array(-3),), {}, None, np.array(3)),
    "depth": ("OneHot", (row(0, 0), np.array([0, 1], "float32"), row(0)), {}, [2, 0], row(0)),
}
DECLARED = frozenset({"size"})
"""ONNX Runtime warns of the declared size alone."""
ORDER = {"ScatterND": (0, 2, 1), "OneHot": (0, 2, 1)}


def _model(case: str, operands: list[np.ndarray]) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    op, _, attributes, shape, _ = CASES[case]
    values = {f"i{at}": operand for at, operand in enumerate(operands)}
    names = [f"i{at}" for at in ORDER.get(op, range(len(operands)))]
    domain = "ai.onnx.ml" if op == "ArrayFeatureExtractor" else ""
    element = TensorProto.INT64 if op == "Div" else TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], domain=domain, **attributes)],
        case,
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in values.items()
        ],
        [helper.make_tensor_value_info("y", element, shape)],
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8), values


@pytest.mark.parametrize("case", CASES)
def test_what_onnxruntime_refuses(case: str) -> None:
    model, wrong = _model(case, list(CASES[case][1]))
    compiled = fusion.compile(model, threads=1)
    if case not in DECLARED:
        with pytest.raises(Exception, match="ONNXRuntimeError"):
            onnxruntime_runs(model, wrong)
    with pytest.raises(ExecutionError):
        compiled.run(wrong)
    last = CASES[case][4]
    right = {**wrong, list(wrong)[-1]: last}
    if last.shape == wrong[list(wrong)[-1]].shape and case != "depth":
        (expected,) = onnxruntime_runs(model, right)
        np.testing.assert_allclose(compiled.run(right)["y"], expected, atol=1e-6)
