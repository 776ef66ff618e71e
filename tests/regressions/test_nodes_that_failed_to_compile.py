"""Nodes that ended as internal errors: attributes beyond float16, sums of booleans, reflections at a single pixel, axes
of a run that are none, and constants whose rank only the run knows."""

from __future__ import annotations

import time

import numpy as np
import pytest
from onnx import TensorProto, helper
from tvm import relax
from tvm.relax import op

import fusion
from fusion.errors import ExecutionError
from tests import internal_errors
from tests.frontends.against_onnxruntime import check, model_of, onnxruntime_runs
from tests.regressions.relax_models import module

RNG = np.random.default_rng(0)


def test_of_set_22() -> None:
    nodes = [
        helper.make_node("LeakyRelu", ["half"], ["leaky"], alpha=1e30),
        helper.make_node("HardSigmoid", ["half"], ["hard"], alpha=1e30, beta=-1e30),
        helper.make_node("Selu", ["half"], ["selu"], alpha=1e30, gamma=-1e30),
        helper.make_node("ScatterND", ["bits", "at", "others"], ["sums"], reduction="add"),
        helper.make_node("ScatterElements", ["bits", "place", "others"], ["products"], reduction="mul"),
        helper.make_node("GridSample", ["image", "grid"], ["pixels"], padding_mode="reflection", align_corners=1),
        helper.make_node("Squeeze", ["image", "no_axes"], ["same"]),
    ]
    inputs = {
        "half": RNG.normal(size=(3, 4)).astype("float16"),
        "bits": np.array([False, False, True, True]),
        "others": np.array([False, True, False, True]),
        "image": RNG.normal(size=(1, 2, 1, 3)).astype("float32"),
        "grid": RNG.uniform(-2, 2, size=(1, 3, 3, 2)).astype("float32"),
        "no_axes": np.empty(0, "int64"),
    }
    model = model_of(22, nodes, inputs, at=np.arange(4).reshape(4, 1), place=np.arange(4))
    model.graph.output[-1].CopyFrom(helper.make_tensor_value_info("same", TensorProto.FLOAT, [2, 3]))
    with internal_errors.collect() as defects:
        check(model, inputs, fallbacks=None)
    assert not defects


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_places_of_a_bicubic_are_reflected_as_whole_numbers(dtype: str) -> None:
    """As branches over floats they took LLVM 18 s, and 40 s in half precision."""
    modes = {"mode": "cubic", "padding_mode": "reflection"}
    nodes = [
        helper.make_node("GridSample", ["image", "grid"], [f"corners {flag}"], align_corners=flag, **modes)
        for flag in (0, 1)
    ]
    grid = RNG.uniform(-3, 3, size=(1, 3, 5, 2)).astype("float32")
    inputs = {"image": RNG.normal(size=(1, 2, 4, 3)).astype(dtype), "grid": grid}
    started = time.process_time()
    check(model_of(20, nodes, inputs), inputs, fallbacks=None, tolerance=1e-5 if dtype == "float32" else 2e-3)
    assert time.process_time() - started < 8


def test_axes_of_constants_that_only_the_run_knows() -> None:
    inputs = {"axes": np.array([0, 3])}
    nodes = [helper.make_node("Unsqueeze", ["row", "axes"], ["y"])]
    model = model_of(13, nodes, inputs, row=np.arange(6).reshape(2, 3))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.INT64, [1, 2, 3, 1]))
    with internal_errors.collect() as defects:
        check(model, inputs, fallbacks=None)
    assert not defects


def test_the_lower_of_two_booleans_is_refused_as_there() -> None:
    inputs = {"bits": np.array([True, False]), "others": np.array([True, True])}
    nodes = [helper.make_node("ScatterElements", ["bits", "place", "others"], ["y"], reduction="min")]
    model = model_of(18, nodes, inputs, place=np.arange(2))
    with pytest.raises(Exception, match="bool data type is not supported"):
        onnxruntime_runs(model, inputs)
    with pytest.raises(ExecutionError, match="bool data type is not supported"):
        fusion.compile(model, threads=1).run(inputs)


def test_numbers_beyond_float16_in_relax() -> None:
    x = np.array([[-2, -0.5, 0, 3]], "float16")

    def build(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.nn.leakyrelu(builder.emit(op.clip(x, -1e30, 1e30)), 1e6)

    (made,) = fusion.compile(module(build, {"x": (x.shape, "float16")}), threads=1)(x)
    np.testing.assert_array_equal(made, np.array([[-np.inf, -np.inf, 0, 3]], "float16"))
