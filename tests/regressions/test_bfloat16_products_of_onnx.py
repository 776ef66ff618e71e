"""Weights of MatMul and Gemm in bfloat16 became float32 while compiling, twice the memory and no product of a tensor
core; convolutions in bfloat16 took plain loops on CPUs, as all products did without an instruction for it."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import fusion
from backends.kernel import UNSCHEDULED
from tests.backends.cuda.test_models import convolved
from tests.targets import runs_here

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(list(shape)).standard_normal(shape).astype(BFLOAT16)


X, W, B = drawn(24, 96), drawn(48, 96), drawn(48)
IMAGE, TAPS, PIXEL = drawn(1, 16, 12, 12), drawn(32, 16, 3, 3), drawn(32, 16, 1, 1)
PRODUCTS = {
    "matmul": (helper.make_node("MatMul", ["x", "w"], ["y"]), X, {"w": W.T.copy()}),
    "gemm": (helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1, alpha=0.5), X, {"w": W, "b": B}),
    "conv": (helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4), IMAGE, {"w": TAPS}),
    "conv of a pixel": (helper.make_node("Conv", ["x", "w"], ["y"]), IMAGE, {"w": PIXEL}),
}
EXPECTED = {
    "matmul": lambda x, w: x @ w,
    "gemm": lambda x, w, b: 0.5 * x @ w.T + b,
    "conv": convolved,
    "conv of a pixel": lambda x, w: np.einsum("nchw,oc->nohw", x, w[:, :, 0, 0]),
}


def model(name: str) -> onnx.ModelProto:
    node, x, weights = PRODUCTS[name]
    graph = helper.make_graph(
        [node], name, [helper.make_tensor_value_info("x", onnx.TensorProto.BFLOAT16, x.shape)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.BFLOAT16, None)],
        [numpy_helper.from_array(array, key) for key, array in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell", "llvm -mcpu=cascadelake", "llvm -mcpu=cooperlake"])
def test_of_cpus(name: str, target: str) -> None:
    """Results are rounded once; no kernel is one of plain loops, which every product has that no family takes."""
    module = fusion.compile(model(name), target, threads=1, strict=True)
    (form,) = module.specializations
    templates = {kernel.template for kernel in form.kernels.values() if kernel.flops > 90_000}
    assert templates.isdisjoint({"stitch_stages", "fallback_loops", UNSCHEDULED})
    if not runs_here(target):
        pytest.skip("this machine has no such instructions")
    _, x, weights = PRODUCTS[name]
    (y,) = module.run({"x": x}).values()
    wanted = EXPECTED[name](*(each.astype(np.float64) for each in (x, *weights.values())))
    rounded_once = np.abs(wanted.astype(BFLOAT16).astype(np.float64) - wanted).max()
    assert np.abs(y.astype(np.float64) - wanted).max() <= 1.05 * rounded_once

