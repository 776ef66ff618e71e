"""Products of bytes: exact, whatever the sizes, and what is behind them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from tvm import relax
from tvm.relax import op

import fusion
from fusion import context
from partition.access import MATMUL
from tests.backends.cpu.kernels.anchored import run
from tests.passes.test_multiply_bytes import drawn

pytestmark = pytest.mark.skipif(
    not context.resolve("llvm").compiler.machine.dot_bytes, reason="the CPU has no instructions for products of bytes"
)

SHAPES = [(1, 1, 1), (3, 5, 7), (1, 384, 40), (13, 30, 33), (33, 64, 17), (70, 63, 40), (100, 95, 300), (64, 1602, 33)]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("rows", "depth", "channels"), SHAPES)
def test_products_are_exact(rows: int, depth: int, channels: int, threads: int) -> None:
    data, weights = drawn("uint8", rows, depth), drawn("int8", depth, channels)

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.matmul(x, relax.const(weights), out_dtype="int32")

    ran = run(build, [data], "llvm", threads)
    np.testing.assert_array_equal(ran.outputs[0], data.astype("int64") @ weights)
    assert ran.templates() == [MATMUL]


def test_several_products_of_the_same_rows_and_what_is_behind_them() -> None:
    data, first, second = drawn("uint8", 50, 72), drawn("int8", 72, 40), drawn("int8", 72, 90)
    scales = np.linspace(1e-4, 2e-4, 90, dtype="float32")

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        one, other = (b.emit(op.matmul(x, relax.const(each), out_dtype="int32")) for each in (first, second))
        less = b.emit(op.subtract(other, relax.const(np.int32(77))))
        scaled = b.emit(op.multiply(b.emit(op.astype(less, "float32")), relax.const(scales)))
        return relax.Tuple([one, b.emit(op.astype(b.emit(op.clip(b.emit(op.round(scaled)), -128, 127)), "int8"))])

    one, other = run(build, [data], "llvm", 2).outputs
    wide = data.astype("int64")
    np.testing.assert_array_equal(one, wide @ first)
    scaled = (wide @ second - 77).astype("float32") * scales
    np.testing.assert_array_equal(other, np.clip(np.rint(scaled), -128, 127).astype("int8"))


_OPEN = """
<ir_version: 8, opset_import: ["": 17]>
integers (uint8[n, 70] x, uint8 zero) => (int32[n, 50] y) {
  y = MatMulInteger(x, w, zero)
}
"""


def test_any_number_of_rows() -> None:
    weights = drawn("int8", 70, 50)
    model = onnx.parser.parse_model(_OPEN)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    module = fusion.compile(model, threads=2, wait=True, strict=True)
    for rows in (1, 5, 33, 100):
        data = drawn("uint8", rows, 70)
        (found,) = module.run({"x": data, "zero": np.uint8(9)}).values()
        np.testing.assert_array_equal(found, (data.astype("int64") - 9) @ weights)
