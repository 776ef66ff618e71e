"""Resize with antialias against ONNX Runtime: every transformation, by size and by scale, of floats and of bytes."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import fusion

_RNG = np.random.default_rng(15)
_SHAPE = (2, 3, 9, 11)
_BOX = np.array([0, 0, 0.1, -0.2, 1, 1, 0.8, 1.2], np.float32)
_HALVES = np.array([1, 1, 0.5, 0.3], np.float32)
_MIXED = np.array([1, 1, 0.37, 1.6], np.float32)
_SIZES = np.array([2, 3, 4, 5], np.int64)
_CROP = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.0}
_CASES: tuple[tuple[dict[str, Any], np.ndarray], ...] = (
    *[
        ({"mode": mode, "coordinate_transformation_mode": transform}, target)
        for mode in ("linear", "cubic")
        for transform, target in (
            ("half_pixel", _SIZES), ("half_pixel_symmetric", _MIXED), ("pytorch_half_pixel", _HALVES),
            ("align_corners", _SIZES), ("asymmetric", _MIXED),
        )
    ],
    ({"mode": "linear", "exclude_outside": 1}, _MIXED),
    ({"mode": "cubic", "exclude_outside": 1, "cubic_coeff_a": -0.5}, _HALVES),
    ({"mode": "cubic", "axes": [3, 2]}, np.array([4, 20], np.int64)),
    ({"mode": "linear", "axes": [2, 3], "keep_aspect_ratio_policy": "not_larger"}, np.array([5, 4], np.int64)),
    ({"mode": "linear"}, np.array([1, 0.4, 0.6, 1], np.float32)),
    ({"mode": "linear", **_CROP}, _SIZES),
    ({"mode": "cubic", **_CROP}, _MIXED),
)  # fmt: skip


def _model(dtype: int) -> ModelProto:
    """Return a model with an output for each case."""
    nodes: list[NodeProto] = []
    weights = [numpy_helper.from_array(_BOX, "box")]
    for at, (attributes, target) in enumerate(_CASES):
        weights.append(numpy_helper.from_array(target, f"target{at}"))
        box = "box" if "extrapolation_value" in attributes else ""
        given = ["x", box, "", f"target{at}"] if target.dtype == np.int64 else ["x", box, f"target{at}"]
        nodes.append(helper.make_node("Resize", given, [f"y{at}"], antialias=1, **attributes))
    outputs = [helper.make_tensor_value_info(f"y{at}", dtype, None) for at in range(len(_CASES))]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", dtype, _SHAPE)], outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


@lru_cache
def _engines(dtype: int) -> tuple[fusion.CompiledModule, onnxruntime.InferenceSession]:
    model = _model(dtype)
    module = fusion.compile(model, threads=1)
    return module, onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def _run(x: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return what fusion makes of `x`, all of it natively, and what ONNX Runtime does."""
    module, session = _engines(helper.np_dtype_to_tensor_dtype(x.dtype))
    made, expected = list(module.run({"x": x}).values()), session.run(None, {"x": x})
    assert not module.specializations[-1].fallbacks
    assert [array.shape for array in made] == [array.shape for array in expected]
    return made, expected


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float16", 4e-3)])
def test_floats(dtype: str, tolerance: float) -> None:
    x = _RNG.standard_normal(_SHAPE).astype(dtype)
    for case, ours, theirs in zip(_CASES, *_run(x), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance, err_msg=str(case))


def test_bytes_are_rounded_once_an_axis() -> None:
    x = _RNG.integers(0, 256, _SHAPE, dtype=np.uint8)
    for case, ours, theirs in zip(_CASES, *_run(x), strict=True):
        np.testing.assert_array_equal(ours, theirs, err_msg=str(case))


def test_infinities_stay_in_their_windows() -> None:
    x = np.zeros(_SHAPE, np.float32)
    x[0, 0, 4, 5] = np.inf
    for case, ours, theirs in zip(_CASES, *_run(x), strict=True):
        np.testing.assert_array_equal(np.isfinite(ours), np.isfinite(theirs), err_msg=str(case))


def test_int8_is_left_to_onnx_runtime() -> None:
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear", antialias=1)
    x = helper.make_tensor_value_info("x", TensorProto.INT8, _SHAPE)
    y = helper.make_tensor_value_info("y", TensorProto.INT8, None)
    graph = helper.make_graph([node], "g", [x], [y], [numpy_helper.from_array(_SIZES, "sizes")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    data = _RNG.integers(-128, 128, _SHAPE, dtype=np.int8)
    module = fusion.compile(model, threads=1)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(module.run({"x": data})["y"], session.run(None, {"x": data})[0])
    assert [node.reason for node in module.specializations[-1].fallbacks] == ["interpolation of int8"]
