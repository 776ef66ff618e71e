"""A kernel of images of one size has a body for few images and one for many; each read packed weights of its own, which
were no parameter, and the form for all sizes was lost to an internal error."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import fusion


def test_both_bodies_read_the_weights_of_the_kernel() -> None:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((32, 32, 3, 3)).astype("float32") / 16
    shape = ["batch", 32, 16, 16]
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)], [numpy_helper.from_array(weight, "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    module = fusion.compile(onnx.ModelProto.FromString(model.SerializeToString()), threads=2, wait=True)
    for batch in (1, 2, 7):
        x = rng.standard_normal((batch, 32, 16, 16)).astype("float32")
        wide = np.pad(x.astype("float64"), ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (2, 3))
        np.testing.assert_allclose(module(x)[0], np.einsum("bchwij,ocij->bohw", windows, weight), atol=1e-4)
    (form,) = module.specializations
    assert form.opened is not None
