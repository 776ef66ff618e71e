"""Convolutions of bytes without their zero points: exact, with a border of zeros."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from torch import from_numpy
from torch.nn import functional
from tvm import relax
from tvm.relax import op

import fusion
from fusion import context
from partition.access import CONV2D
from tests.backends.cpu.kernels.anchored import run
from tests.passes.test_multiply_bytes import drawn

pytestmark = pytest.mark.skipif(
    not context.resolve("llvm").compiler.machine.dot_pairs, reason="the CPU has no products of pairs of int16"
)


def convolved(data: np.ndarray, weights: np.ndarray, **options: int) -> np.ndarray:
    """Return the exact convolution of N x C x H x W images."""
    images, wide = (from_numpy(each.astype("float64")) for each in (data, weights))
    return np.asarray(functional.conv2d(images, wide, **options).numpy())


@pytest.mark.parametrize("factor", [1, 2])
@pytest.mark.parametrize(
    ("depth", "kernel", "stride", "padding", "channels"),
    [(3, 3, 2, 1, 24), (20, 3, 1, 1, 40), (33, 5, 2, 2, 17), (64, 1, 2, 0, 20)],
)
def test_convolutions_are_exact(
    depth: int, kernel: int, stride: int, padding: int, channels: int, factor: int
) -> None:  # fmt: skip
    data = 2 * drawn("int8", 2, 13, 11, depth).astype("int16") + 1
    weights = factor * drawn("int8", channels, depth, kernel, kernel).astype("int16")

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.nn.conv2d(
            x, relax.const(weights), strides=stride, padding=padding, data_layout="NHWC", kernel_layout="OIHW",
            out_dtype="int32",
        )  # fmt: skip

    ran = run(build, [data], "llvm", 2)
    exact = convolved(data.transpose(0, 3, 1, 2), weights, stride=stride, padding=padding)
    np.testing.assert_array_equal(ran.outputs[0], exact.transpose(0, 2, 3, 1))
    assert ran.templates() == [CONV2D]


_INTEGERS = """
<ir_version: 8, opset_import: ["": 17]>
integers (uint8[1, CHANNELS, 12, 12] x, uint8 zero) => (int32[1, CHANNELS, 12, 12] y) {
  y = ConvInteger<pads = [1, 1, 1, 1], group = GROUPS>(x, w, zero)
}
"""


@pytest.mark.parametrize(("channels", "groups"), [(20, 1), (32, 32)])
def test_integers_with_a_zero_point_of_the_run(channels: int, groups: int) -> None:
    weights, data = drawn("int8", channels, channels // groups, 3, 3), drawn("uint8", 1, channels, 12, 12)
    model = onnx.parser.parse_model(_INTEGERS.replace("CHANNELS", str(channels)).replace("GROUPS", str(groups)))
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    (found,) = fusion.compile(model, threads=1, strict=True).run({"x": data, "zero": np.uint8(131)}).values()
    np.testing.assert_array_equal(found, convolved(data.astype("int16") - 131, weights, padding=1, groups=groups))
