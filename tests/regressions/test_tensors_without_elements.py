"""Tensors without elements: NumPy gives them strides that kernels refused, and sums over nothing were not begun."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import fusion
from fusion.tensors import as_tensor
from tests.regressions.relax_models import Build, module

ONES = np.ones((3, 4), "float32")
# name -> (build, shape of the input, expected)
CASES: dict[str, tuple[Build, tuple[int, ...], np.ndarray]] = {
    "elementwise": (lambda builder, x: op.exp(x), (2, 0, 4), np.zeros((2, 0, 4))),
    "softmax": (lambda builder, x: op.nn.softmax(x, -1), (0, 5), np.zeros((0, 5))),
    "softmax of empty rows": (lambda builder, x: op.nn.softmax(x, -1), (5, 0), np.zeros((5, 0))),
    "sum of empty rows": (lambda builder, x: op.sum(x, 1), (2, 0, 4), np.zeros((2, 4))),
    "sum of no rows": (lambda builder, x: op.sum(x, 1), (0, 4), np.zeros(0)),
    "transpose": (lambda builder, x: op.permute_dims(x, [1, 0]), (0, 4), np.zeros((4, 0))),
    "concat": (lambda builder, x: op.concat([x, relax.const(ONES)], 0), (0, 4), ONES),
    "no rows times weights": (lambda builder, x: op.matmul(x, relax.const(ONES)), (0, 3), np.zeros((0, 4))),
    "no terms": (
        lambda builder, x: op.matmul(x, relax.const(tvm.runtime.tensor(np.zeros((0, 4), "float32")))),
        (3, 0),
        np.zeros((3, 4)),
    ),
    "batches": (lambda builder, x: op.matmul(x, op.permute_dims(x, [0, 2, 1])), (0, 3, 5), np.zeros((0, 3, 3))),
    "convolution": (
        lambda builder, x: op.nn.conv2d(x, relax.const(np.ones((6, 3, 3, 3), "float32"))),
        (0, 3, 8, 8),
        np.zeros((0, 6, 6, 6)),
    ),
    "depthwise": (
        lambda builder, x: op.nn.conv2d(x, relax.const(np.ones((3, 1, 3, 3), "float32")), groups=3),
        (0, 3, 8, 8),
        np.zeros((0, 3, 6, 6)),
    ),
    "pooling": (lambda builder, x: op.nn.max_pool2d(x, (2, 2)), (0, 3, 8, 8), np.zeros((0, 3, 7, 7))),
}


@pytest.mark.parametrize("case", CASES)
def test_kernel(case: str) -> None:
    build, shape, expected = CASES[case]
    (made,) = fusion.compile(module(build, {"x": (shape, "float32")}), threads=2)(np.zeros(shape, "float32"))
    assert made.shape == expected.shape
    np.testing.assert_array_equal(made, expected)


def test_strides_are_those_of_a_full_tensor() -> None:
    tensor = as_tensor(np.zeros((2, 0, 4), "float32"))
    assert tuple(tensor.shape) == (2, 0, 4)
    assert str(tensor.dtype) == "float32"
    assert tuple(tensor.strides) == (0, 4, 1)


def test_empty_weight_is_saved(tmp_path: Path) -> None:
    def build(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.concat([x, relax.const(tvm.runtime.tensor(np.zeros((0, 4), "float32")))], 0)

    compiled = fusion.compile(module(build, {"x": ((3, 4), "float32")}), threads=1)
    np.testing.assert_array_equal(compiled(ONES)[0], ONES)
    compiled.save(tmp_path / "empty.fusion")
    np.testing.assert_array_equal(fusion.load(tmp_path / "empty.fusion")(ONES)[0], ONES)


def test_compress_takes_nothing_of_nothing() -> None:
    """Whatever the condition says of elements that are not there."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        agraph (float[3,0,16] x, bool[2] c) => (float[n] y) { y = Compress (x, c) }
    """)
    inputs = {"x": np.zeros((3, 0, 16), np.float32), "c": np.array([True, True])}
    assert fusion.compile(model, threads=1).run(inputs)["y"].shape == (0,)
