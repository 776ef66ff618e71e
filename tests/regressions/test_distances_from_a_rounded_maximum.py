"""Softmax and its kin of products whose size is beyond 2^31: the maximum was rounded, and a multiply-add that took it
from an element was not, so that the largest was far from itself: NaN, or infinite."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import fusion
from tests.frontends.against_onnxruntime import onnxruntime_runs
from tests.fuzz.engines import run_float64
from tests.targets import AVX2, runs_here

pytestmark = pytest.mark.optimised
TARGETS = [target for target in ("llvm", AVX2, "llvm -mcpu=skylake-avx512") if runs_here(target)]
SIZES = np.array([1e-3, 1, 1e4, 1e10, 1e18, 1e30, 1e37])
"""Of the numbers in a row: the last ones times 1.7 are within float32."""


NODES = {"Softmax": "Softmax <axis = {axis}> (z)", "LogSoftmax": "LogSoftmax <axis = {axis}> (z)",
         "ReduceLogSumExp": "ReduceLogSumExp (z, axes)"}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("node", NODES)
def test_rows_of_scaled_numbers(node: str, axis: int, target: str) -> None:
    numbers = np.random.default_rng(0).normal(size=(len(SIZES), 7)) * SIZES[:, None]
    x = np.ascontiguousarray(numbers if axis else numbers.T, np.float32)
    rows, columns = x.shape
    model = onnx.parser.parse_model(
        f"""
        <ir_version: 8, opset_import: ["": 18]> graph (float[{rows},{columns}] x) => (y)
            <float factor = {{1.7}}, int64[1] axes = {{{axis}}}>
        {{ z = Mul (x, factor) y = {NODES[node].format(axis=axis)} }}
        """
    )
    (ours,), (theirs,) = fusion.compile(model, target=target, threads=1)(x), onnxruntime_runs(model, {"x": x})
    exact = run_float64(model, {"x": x}).values["y"]
    size = np.abs(exact).max(axis, keepdims=True)
    far, allowed = (np.abs(each - exact).max(axis, keepdims=True) for each in (ours, theirs))
    assert (far <= 2 * allowed + 1e-6 * size).all()
