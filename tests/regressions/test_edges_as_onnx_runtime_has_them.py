"""What operators make of nothing, of zeros, of one pixel and of attributes out of the ordinary was what onnx's function
bodies or TVM's converters say, and not what ONNX Runtime computes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import fusion
from fusion.errors import ShapeError
from tests import internal_errors
from tests.frontends.against_onnxruntime import model_of


def _compare(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> None:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = session.run(None, inputs)
    with internal_errors.collect() as defects:
        results = fusion.compile(model, threads=1).run(inputs)
    assert not defects
    for (name, found), value in zip(results.items(), wanted, strict=True):
        assert found.dtype == value.dtype, name
        np.testing.assert_allclose(found, value, rtol=2e-3 if value.dtype == np.float16 else 1e-5, err_msg=name)


def test_of_set_20() -> None:
    nodes = [
        helper.make_node("ReduceMean", ["nothing", "axis"], ["mean"]),
        helper.make_node("ReduceMean", ["no_numbers", "axis"], ["mean_of_integers"]),
        helper.make_node("ReduceSum", ["x", "axis"], ["sum"], keepdims=2),
        helper.make_node("ArgMax", ["x"], ["place"], axis=1, keepdims=2),
        helper.make_node("ReduceL2", ["x", "no_axis"], ["norm"], noop_with_empty_axes=-3),
        helper.make_node("Reshape", ["x", "kept"], ["reshaped"], allowzero=7),
        helper.make_node("DynamicQuantizeLinear", ["zeros"], ["q0", "scale0", "zero0"]),
        helper.make_node("DynamicQuantizeLinear", ["nothing"], ["q1", "scale1", "zero1"]),
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q2", "scale2", "zero2"]),
        helper.make_node("MeanVarianceNormalization", ["half"], ["normal"]),
        helper.make_node("AffineGrid", ["theta", "size"], ["grid"], align_corners=1),
        helper.make_node("NonZero", ["scalar"], ["places"]),
        helper.make_node("NonZero", ["one"], ["places_of_constant"]),
        helper.make_node("LogSoftmax", ["large"], ["log"]),
        helper.make_node("GatherElements", ["table", "few"], ["gathered"], axis=1),
        helper.make_node("RoiAlign", ["image", "boxes", "batch"], ["bins"], output_height=4, spatial_scale=0.5),
    ]
    inputs = {
        "nothing": np.empty((2, 0), np.float32),
        "no_numbers": np.empty((2, 0), np.int32),
        "x": np.array([[1, -0.3, -2.5], [7, 0, 2]], np.float32),
        "zeros": np.zeros(3, np.float32),
        "half": np.linspace(-2, 5, 24, dtype=np.float16).reshape(1, 2, 3, 4),
        "theta": np.ones((1, 3, 4), np.float32),
        "scalar": np.array(3, np.float32),
        "large": np.array([[1e6, 1e6], [1, 2]], np.float32),
        "image": np.full((1, 1, 1, 1), 0.6),
        "boxes": np.array([[0.036, 2.4, 3.27, 5.4]]),
    }
    tables = {"table": np.arange(24, dtype=np.float32).reshape(2, 3, 4), "few": np.full((1, 5, 2), 2)}
    sizes = {"axis": [1], "no_axis": np.empty(0, np.int64), "kept": [0, 3]}
    sizes |= {"size": [1, 1, 1, 1, 1], "batch": [0], "one": np.float32(1)}
    _compare(model_of(20, nodes, inputs, **sizes, **tables), inputs)


def test_of_set_9() -> None:
    nodes = [
        helper.make_node("Dropout", ["x"], ["y", "mask"]),
        helper.make_node("Upsample", ["x", "scales"], ["up"]),
        helper.make_node("Upsample", ["one", "scales"], ["up_from_one"]),
    ]
    inputs = {"x": np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2), "one": np.ones((1, 1, 1, 1), np.float32)}
    _compare(model_of(9, nodes, inputs, scales=np.array([1, 1, 2, 3], np.float32)), inputs)


def test_integer_image_smaller_than_the_window() -> None:
    image, window = np.ones((1, 1, 2, 2), np.uint8), np.ones((1, 1, 3, 3), np.uint8)
    model = model_of(13, [helper.make_node("ConvInteger", ["x", "w"], ["y"])], {"x": image, "w": window})
    with pytest.raises(ShapeError, match="smaller than its window"):
        fusion.compile(model)


def test_numbers_of_bfloat16_are_tested() -> None:
    x = np.array([1.5, np.nan, np.inf, -np.inf]).astype(ml_dtypes.bfloat16)
    nodes = [helper.make_node(kind, ["x"], [kind]) for kind in ("IsNaN", "IsInf", "Round")]
    model = model_of(22, nodes, {"x": x})
    kinds = (TensorProto.BOOL, TensorProto.BOOL, TensorProto.BFLOAT16)
    for output, kind in zip(model.graph.output, kinds, strict=True):
        output.type.tensor_type.elem_type = kind
    with internal_errors.collect() as defects:
        results = fusion.compile(model, threads=1).run({"x": x})
    assert not defects
    np.testing.assert_array_equal(results["IsNaN"], [False, True, False, False])
    np.testing.assert_array_equal(results["IsInf"], [False, False, True, True])
    np.testing.assert_array_equal(results["Round"].astype(np.float32), [2, np.nan, np.inf, -np.inf])
