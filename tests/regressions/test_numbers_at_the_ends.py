"""Operators at the ends of their dtypes, at NaN and at infinities, against ONNX Runtime: each of these was wrong, or
an internal error."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest
from onnx import NodeProto, TensorProto, helper

import fusion
from tests.regressions.test_nan_of_rows_and_pairs import Arrays, outputs_of

NUMBERS = np.array(
    [np.nan, np.inf, -np.inf, 0, -0.0, 0.5, -0.5, 1.5, -2.5, 88.8, -88.8, 3.3, -104, 127.5, 128, -129, 255.9, 256,
     2.0**31, -(2.0**31), 2.0**40, 2.0**63, 1e38, -1e38],
    np.float32,
)  # fmt: skip


def check(nodes: list[NodeProto], inputs: Arrays, weights: Arrays | None = None, rtol: float = 1e-6) -> None:
    model, made = outputs_of(nodes, inputs, weights)
    for name, want in zip(made, ort.InferenceSession(model).run(None, inputs), strict=True):
        np.testing.assert_allclose(made[name], want, rtol=rtol, atol=1e-6, err_msg=name)


def test_floats() -> None:
    nodes = [helper.make_node(op, ["x"], [op]) for op in ("Sign", "Cosh", "Sinh", "Clip", "Sigmoid", "Tanh")]
    nodes += [helper.make_node("Pow", ["x", name], [f"pow_{name}"]) for name in ("half", "minus_half", "odd")]
    check(nodes, {"x": NUMBERS}, {"half": np.float32(0.5), "minus_half": np.float32(-0.5), "odd": np.array(2**31 - 1)})


@pytest.mark.parametrize("target", ["INT8", "UINT8", "INT16", "UINT16", "INT32", "INT64", "UINT64", "BOOL"])
def test_casts_and_back(target: str) -> None:
    """A float that does not fit the integer is what ONNX Runtime makes of it, also where it becomes a float again."""
    there = helper.make_node("Cast", ["x"], ["there"], to=getattr(TensorProto, target))
    back = helper.make_node("Cast", ["there"], ["back"], to=TensorProto.FLOAT)
    check([there, back], {"x": NUMBERS})


def test_rounding_to_bfloat16_and_back() -> None:
    x = np.random.default_rng(0).standard_normal(37).astype(np.float32)
    nodes = [
        helper.make_node("Cast", ["x"], ["half"], to=TensorProto.BFLOAT16),
        helper.make_node("Cast", ["half"], ["back"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["back", "x"], ["sum"]),
    ]
    _, made = outputs_of(nodes, {"x": x})
    bits = x.view(np.uint32)
    near = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).view(np.float32)
    np.testing.assert_array_equal(made["back"], near)
    np.testing.assert_array_equal(made["sum"], near + x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions_near_zero(dtype: type) -> None:
    """They are odd and as steep as x there, so that a quotient of them needs all digits."""
    x = np.concatenate([-np.geomspace(1e-30, 0.9, 61), np.geomspace(1e-30, 0.9, 61)]).astype(dtype)
    functions = {"Atanh": np.arctanh, "Sinh": np.sinh, "Tanh": np.tanh}
    model, _ = outputs_of([helper.make_node(op, ["x"], [op]) for op in functions], {"x": x})
    made = fusion.compile(onnx.load_from_string(model), threads=1, strict=True).run({"x": x})
    for op, function in functions.items():
        np.testing.assert_allclose(made[op], function(x), rtol=6 * np.finfo(dtype).eps, err_msg=op)


def test_functions_of_float16() -> None:
    """TVM lowers none of these in float16."""
    ops = ("Atan", "Atanh", "Asin", "Acos", "Asinh", "Sinh", "Cosh", "Tan", "Erf", "Mish")
    x = np.linspace(-0.9, 0.9, 37).astype(np.float16)
    nodes = [helper.make_node(op, ["x"], [op]) for op in ops]
    nodes.append(helper.make_node("Mean", ["x", "large", "large"], ["mean"]))
    nodes.append(helper.make_node("LpNormalization", ["large"], ["norm"]))
    check(nodes, {"x": x, "large": np.full(37, 60000, np.float16)}, rtol=2e-3)


def test_integers() -> None:
    x = np.array([[-128, 127, 0, 1, -7, 100]], np.int8)
    nodes = [
        helper.make_node("Shrink", ["x"], ["shrunk"], bias=1.5, lambd=0.5),
        helper.make_node("Pow", ["wide", "three"], ["cubes"]),
        helper.make_node("Mod", ["bytes", "row"], ["rest"]),
        helper.make_node("Equal", ["yes", "no"], ["equal"]),
    ]
    inputs = {
        "x": x,
        "wide": np.array([2**62 + 1, -(2**63), 3], np.int64),
        "bytes": np.arange(200, 228, dtype=np.uint8).reshape(4, 7),
        "row": np.arange(1, 8, dtype=np.uint8),
        "yes": np.array([[True], [False]]),
        "no": np.array([True, False, True]),
    }
    check(nodes, inputs, {"three": np.array(3, np.int64)})


@pytest.mark.parametrize("dtype", ["uint8", "int8", "float32"])
def test_resize(dtype: str) -> None:
    """Interpolated bytes are cut off, antialias is ONNX Runtime's, and positions are computed in float32."""
    ends = np.iinfo(dtype) if dtype != "float32" else np.iinfo("int8")
    x = np.random.default_rng(0).integers(ends.min, ends.max, (1, 2, 6, 7)).astype(dtype)
    transforms = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
    nodes = [
        helper.make_node(
            "Resize", ["x", "", "scales"], [f"{mode}_{how}"], mode=mode, coordinate_transformation_mode=how
        )
        for mode in ("linear", "nearest")
        for how in transforms
    ]
    nodes.append(helper.make_node("Resize", ["x", "", "less"], ["antialias"], mode="linear", antialias=1))
    sizes = {"scales": np.array([1, 1, 2.3, 0.6], np.float32), "less": np.array([1, 1, 0.5, 0.6], np.float32)}
    check(nodes, {"x": x}, sizes, rtol=1e-5)


def test_split_into_many() -> None:
    x = np.arange(3 * 80, dtype=np.float32).reshape(3, 80)
    node = helper.make_node("Split", ["x"], [f"part{index}" for index in range(40)], axis=1, num_outputs=40)
    check([node], {"x": x})


def test_casts_of_scales() -> None:
    """float8e8m0 has no zero, and a NaN; TVM takes these for 0 and infinity."""
    model = onnx.parser.parse_model("""
        <ir_version: 12, opset_import: ["" : 24]>
        agraph (float8e8m0[4] x) => (float[4] y) { y = Cast <to: int = 1> (x) }
    """)
    x = np.array([0, 1, 127, 255], np.uint8).view(ml_dtypes.float8_e8m0fnu)
    np.testing.assert_array_equal(fusion.compile(model, threads=1).run({"x": x})["y"], x.astype(np.float32))


def test_logarithms_of_shares_below_the_least_normal_number() -> None:
    """Also where the shares are read themselves."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 18]> graph (float[3,30] x) => (y, share)
        { share = Softmax <axis = 1> (x) y = Log (share) }"""
    )
    x = np.linspace(0, -900, 90, dtype=np.float32).reshape(3, 30)
    exact = x.astype(np.float64) - x.max(1, keepdims=True)
    exact -= np.log(np.exp(exact).sum(1, keepdims=True))
    logarithm, share = fusion.compile(model)(x)
    np.testing.assert_allclose(logarithm, exact, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(share, np.exp(exact), rtol=1e-6, atol=1e-6)
