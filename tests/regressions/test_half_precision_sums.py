"""Convolutions over one axis, transposed ones, Einsum and recurrent layers summed float16 in float16, GridSample
counted pixels, pools took means and norms and activations differences in it: a sum of 3,000 ones was 3,954. So did Gemm
scale its product, BatchNormalization cancel its mean, Sum add, losses make a mean, and whatever reduced a constant."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import fusion

NODES = {
    "conv": ("Conv", ["row", "taps"], {}),
    "conv in groups": ("Conv", ["row", "half_taps"], {"group": 2}),
    "deconv": ("ConvTranspose", ["row", "spread"], {}),
    "deconv of an image": ("ConvTranspose", ["image", "patch"], {"strides": [2, 2]}),
    "einsum of two": ("Einsum", ["line", "line"], {"equation": "i,i->"}),
    "einsum of three": ("Einsum", ["line", "line", "line"], {"equation": "i,i,i->"}),
    "recurrent": ("RNN", ["step", "step", "state"], {"hidden_size": 1, "activations": ["Relu"]}),
    "pixel": ("GridSample", ["stripes", "place"], {}),
    "mean of a window": ("AveragePool", ["large"], {"kernel_shape": [4, 4]}),
    "norm of a window": ("LpPool", ["hundreds"], {"kernel_shape": [2, 2]}),
    "third norm of a window": ("LpPool", ["hundreds"], {"kernel_shape": [2, 2], "p": 3}),
    "norm of an image": ("GlobalLpPool", ["hundreds"], {}),
    "elu": ("Elu", ["near zero"], {"alpha": 2.0}),
    "selu": ("Selu", ["near zero"], {}),
    "scaled product": ("Gemm", ["hundred rows", "hundred", "one"], {"alpha": 0.01}),
    "vanishing product": ("Gemm", ["row of infinity", "hundred", "one"], {"alpha": 1e-30}),
    "cancelled means": ("BatchNormalization", ["nothing", "one", "one", "one", "one"], {}),
    "three": ("Sum", ["one", "tiny", "tiny"], {}),
    "loss": ("NegativeLogLikelihoodLoss", ["highest", "classes", "weights"], {}),
    "loss of logits": ("SoftmaxCrossEntropyLoss", ["highest", "others", "weights"], {}),
    "running sum": ("CumSum", ["line", "first axis"], {}),
    "running sum from behind": ("CumSum", ["line", "first axis"], {"reverse": 1, "exclusive": 1}),
    "slope": ("HardSigmoid", ["last"], {"alpha": 1e-30, "beta": 0.25}),
}
SHAPES = {
    "row": (1, 1000, 5), "taps": (1, 1000, 3), "half_taps": (2, 500, 3), "spread": (1000, 1, 5),
    "image": (1, 3000, 2, 2), "patch": (3000, 1, 3, 3), "line": (8000,), "step": (1, 1, 3000),
    "state": (1, 1, 1),
}  # fmt: skip
VALUES = {
    "stripes": (np.arange(300) % 2).astype(np.float32).reshape(1, 1, 1, 300),
    "place": np.array([0.0659, 0], np.float16).reshape(1, 1, 1, 2),
    "large": np.linspace(15000, 60000, 32).astype(np.float16).reshape(1, 2, 4, 4),
    "hundreds": np.linspace(200, 900, 32).astype(np.float16).reshape(1, 2, 4, 4),
    "near zero": np.array([-1e-3, -3e-4, -2e-5, 0, 0.5], np.float16),
    "hundred rows": np.full((2, 3), 300, np.float16),
    "row of infinity": np.array([[np.inf, 1, 1]], np.float16),
    "hundred": np.full((3, 1), 300, np.float16),
    "one": np.ones(1, np.float16),
    "tiny": np.full(1, 2**-11, np.float16),
    "nothing": np.zeros((1, 1), np.float16),
    "highest": np.array([[0, 40000], [40000, 0], [0, 40000]], np.float16),
    "classes": np.array([1, 0, 0]),
    "others": np.array([0, 1, 1]),
    "weights": np.ones(2, np.float16),
    "first axis": np.array(0),
    "last": np.array([-np.inf, 0, np.inf], np.float16),
}


@pytest.fixture(scope="module")
def results() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return what fusion makes of every node, and what ONNX Runtime makes of it."""
    nodes = [
        helper.make_node(op, inputs, [f"{name} result"], **attributes)
        for name, (op, inputs, attributes) in NODES.items()
    ]
    inputs = {name: np.full(shape, 1.001, np.float16) for name, shape in SHAPES.items()} | VALUES
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in inputs.items()
    ]
    outputs = [onnx.ValueInfoProto(name=node.output[0]) for node in nodes]
    graph = helper.make_graph(nodes, "sums", infos, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = dict(zip((output.name for output in outputs), session.run(None, inputs), strict=True))
    return dict(fusion.compile(model, threads=1, strict=True).run(inputs)), expected


@pytest.mark.parametrize("name", NODES)
def test_sums_are_made_in_float32(name: str, results: tuple[dict[str, np.ndarray], dict[str, np.ndarray]]) -> None:
    ours, expected = (values[f"{name} result"].astype(np.float64) for values in results)
    np.testing.assert_allclose(ours, expected, rtol=5e-4)


def test_transposed_convolutions_by_constants_are_summed_in_float32() -> None:
    """Their sums are of float32, and they were stored as if their operands were: in an order that no kernel of them
    has."""
    weight = np.full((8, 3, 2, 2), 100.1, np.float16)
    node = helper.make_node("ConvTranspose", ["image", "weight"], ["result"], strides=[2, 2])
    image = helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT16, [1, 8, 3, 5])
    graph = helper.make_graph(
        [node], "constants", [image], [onnx.ValueInfoProto(name="result")], [numpy_helper.from_array(weight, "weight")]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    inputs = {"image": np.full((1, 8, 3, 5), 1.001, np.float16)}
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (result,) = fusion.compile(model, threads=1, strict=True).run(inputs).values()
    np.testing.assert_allclose(result, session.run(None, inputs)[0], rtol=5e-4)


def test_constants_are_summed_in_float32() -> None:
    ones, axes = np.ones((4, 75), ml_dtypes.bfloat16), np.array([0, 1])
    node = helper.make_node("ReduceLogSum", ["ones", "axes"], ["sum"], keepdims=0)
    weights = [numpy_helper.from_array(ones, "ones"), numpy_helper.from_array(axes, "axes")]
    outputs = [helper.make_tensor_value_info("sum", onnx.TensorProto.BFLOAT16, [])]
    graph = helper.make_graph([node], "constants", [], outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    (total,) = fusion.compile(model, threads=1).run({}).values()
    assert abs(float(total) - np.log(300)) < 0.02
