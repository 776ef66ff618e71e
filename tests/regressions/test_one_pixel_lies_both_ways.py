"""An image of one pixel lies row-major and channels-last at once: a strided 1x1 convolution of it, channels-last, was
taken for one of a row-major image, and cut the channels."""

from __future__ import annotations

import numpy as np
import onnxruntime
from onnx import helper
from tvm import relax

import fusion
from tests.backends.cpu.kernels.anchored import normal, run
from tests.module import small_models
from tests.module.small_models import FLOAT


def test_strided_pointwise_convolution_of_a_mean() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool", ["c"], ["m"]),
        helper.make_node("Conv", ["m", "v"], ["y"], strides=[2, 2]),
    ]
    weights = {"w": normal((24, 20, 3, 3), 0), "v": normal((40, 24, 1, 1), 1)}
    model = small_models.model(nodes, [("x", FLOAT, [1, 20, 9, 9])], [("y", FLOAT, [1, 40, 1, 1])], weights)
    x = normal((1, 20, 9, 9), 2)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": x})
    (y,) = fusion.compile(model)(x)
    np.testing.assert_allclose(y, expected, atol=1e-4)


def test_weights_in_another_order_behind_a_transpose_are_not_read_as_oihw() -> None:
    weight = normal((1, 1, 5, 7), 0)

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        image = b.emit(relax.op.permute_dims(x, [0, 2, 3, 1]))
        return relax.op.nn.conv2d(image, relax.const(weight), data_layout="NHWC", kernel_layout="HWIO")

    data = normal((2, 5, 6, 4), 1)
    expected = data.transpose(0, 2, 3, 1).astype(np.float64) @ weight[0, 0]
    np.testing.assert_allclose(run(build, [data], "llvm", 1).outputs[0], expected, atol=1e-5)
