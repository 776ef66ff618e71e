"""Small networks of a few kinds, in a dtype of choice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper


class Network:
    """A graph in the making, one operator after the other; values are known by name."""

    def __init__(self, dtype: str = "float32", seed: int = 0) -> None:
        self.dtype = np.dtype(dtype)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._rng = np.random.default_rng(seed)

    def input(self, shape: Sequence[int | str], dtype: str = "") -> str:
        """Return a new input."""
        name = f"x{len(self._inputs)}"
        element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype or self.dtype))
        self._inputs.append(helper.make_tensor_value_info(name, element, list(shape)))
        return name

    def op(self, operator: str, *inputs: str, **attributes: object) -> str:
        """Return the result of an operator."""
        name = f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], name, **attributes))
        return name

    def constant(self, array: np.ndarray) -> str:
        """Return a constant."""
        self.weights.append(numpy_helper.from_array(array, f"c{len(self.weights)}"))
        return str(self.weights[-1].name)

    def weight(self, *shape: int) -> str:
        """Return random numbers that keep the size of what they are multiplied with."""
        fan = int(np.prod(shape[1:])) if len(shape) > 2 else shape[0]
        return self.constant((self._rng.normal(size=shape) / np.sqrt(fan)).astype(self.dtype))

    def conv(self, x: str, into: int, out: int, size: int = 3, group: int = 1, stride: int = 1) -> str:
        """Return a convolution with bias."""
        bias = self.constant(np.full(out, 0.1, self.dtype))
        weight = self.weight(out, into // group, size, size)
        return self.op("Conv", x, weight, bias, pads=[size // 2] * 4, group=group, strides=[stride] * 2)

    def dense(self, x: str, into: int, out: int) -> str:
        """Return a matmul with bias."""
        bias = self.constant(np.full(out, 0.1, self.dtype))
        return self.op("Add", self.op("MatMul", x, self.weight(into, out)), bias)

    def norm(self, x: str, width: int) -> str:
        """Return rows of mean 0 and variance 1."""
        ones, zeros = (self.constant(np.full(width, value, self.dtype)) for value in (1, 0))
        return self.op("LayerNormalization", x, ones, zeros)

    def model(self, *results: str, opset: int = 17) -> onnx.ModelProto:
        """Return the graph as a model that returns `results`."""
        outputs = [onnx.ValueInfoProto(name=name) for name in results]
        graph = helper.make_graph(self.nodes, "g", self._inputs, outputs, self.weights)
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
        return onnx.shape_inference.infer_shapes(model)


def images(dtype: str = "float32", size: int = 28, batch: int | str = 1) -> onnx.ModelProto:
    """Return convolutions with a residual, a pool and a classifier."""
    net = Network(dtype)
    x = net.op("Relu", net.conv(net.input([batch, 3, size, size]), 3, 32))
    for _ in range(2):
        inner = net.op("Relu", net.conv(x, 32, 32))
        x = net.op("Relu", net.op("Add", net.conv(inner, 32, 32), x))
    x = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.op("Flatten", net.op("GlobalAveragePool", net.op("Relu", net.conv(x, 32, 64))))
    return net.model(net.op("Softmax", net.op("Gemm", x, net.weight(64, 10))))


def small_images(size: int = 32) -> onnx.ModelProto:
    """Return a convolution, a pool and a classifier."""
    net = Network()
    x = net.op("Relu", net.conv(net.input([1, 3, size, size]), 3, 8))
    x = net.op("Flatten", net.op("GlobalAveragePool", x))
    return net.model(net.op("Softmax", net.op("Gemm", x, net.weight(8, 10))))


def separable(dtype: str = "float32", size: int = 28, activation: str = "HardSwish") -> onnx.ModelProto:
    """Return depthwise convolutions and pointwise ones in turn."""
    net = Network(dtype)
    x = net.conv(net.input([1, 3, size, size]), 3, 32)
    for stride in (1, 2, 1):
        x = net.op(activation, net.conv(net.op(activation, net.conv(x, 32, 32, 3, 32, stride)), 32, 32, 1))
    return net.model(net.op("Flatten", net.op("GlobalAveragePool", x)))


def decoder(dtype: str = "float32") -> onnx.ModelProto:
    """Return transposed convolutions into an image."""
    net = Network(dtype)
    x = net.input([1, 32, 14, 14])
    for _ in range(2):
        x = net.op("Relu", net.op("ConvTranspose", x, net.weight(32, 32, 2, 2), strides=[2, 2]))
    return net.model(net.op("Sigmoid", net.conv(x, 32, 3)))


def upsampling() -> onnx.ModelProto:
    """Return transposed convolutions, with windows that overlap and without."""
    net = Network()
    x = net.op("Relu", net.op("ConvTranspose", net.input([1, 32, 14, 14]), net.weight(32, 32, 2, 2), strides=[2, 2]))
    x = net.op("ConvTranspose", x, net.weight(32, 16, 4, 4), strides=[2, 2], pads=[1] * 4)
    return net.model(net.op("Sigmoid", x))


def dense(dtype: str = "float32", rows: int | str = 64, activation: str = "Tanh", width: int = 256) -> onnx.ModelProto:
    """Return matmuls with activations between."""
    net = Network(dtype)
    x = net.input([rows, width])
    for _ in range(3):
        x = net.op(activation, net.dense(x, width, width))
    return net.model(x)


def transformer(dtype: str = "float32", length: int = 64, width: int = 128, heads: int = 4) -> onnx.ModelProto:
    """Return a layer of self-attention and one of two matmuls, each with a residual and a norm."""
    net = Network(dtype)
    x = net.input([1, length, width])
    split = net.constant(np.array([1, length, heads, width // heads], np.int64))
    join = net.constant(np.array([1, length, width], np.int64))
    query, key, value = (net.op("Reshape", net.dense(x, width, width), split) for _ in range(3))
    query, value = (net.op("Transpose", y, perm=[0, 2, 1, 3]) for y in (query, value))
    scores = net.op("MatMul", query, net.op("Transpose", key, perm=[0, 2, 3, 1]))
    scale = net.constant(np.array((width // heads) ** -0.5, net.dtype))
    mixed = net.op("MatMul", net.op("Softmax", net.op("Mul", scores, scale)), value)
    mixed = net.op("Reshape", net.op("Transpose", mixed, perm=[0, 2, 1, 3]), join)
    x = net.norm(net.op("Add", net.dense(mixed, width, width), x), width)
    inner = net.dense(x, width, 4 * width)
    gate = net.op("Erf", net.op("Mul", inner, net.constant(np.array(0.7071, net.dtype))))
    gelu = net.op("Mul", inner, net.op("Add", gate, net.constant(np.array(1, net.dtype))))
    return net.model(net.norm(net.op("Add", net.dense(gelu, 4 * width, width), x), width))


def recurrent(dtype: str = "float32", length: int = 16, width: int = 64) -> onnx.ModelProto:
    """Return an LSTM and a matmul."""
    net = Network(dtype)
    gates = [net.weight(1, 4 * width, width) for _ in range(2)]
    y = net.op("LSTM", net.input([length, 1, width]), *gates, hidden_size=width)
    rows = net.op("Reshape", y, net.constant(np.array([length, width], np.int64)))
    return net.model(net.dense(rows, width, width))


def between_casts() -> onnx.ModelProto:
    """Return convolutions in float16 whose inputs and results are float32."""
    net = Network("float16")
    x = net.op("Cast", net.input([1, 3, 28, 28], "float32"), to=onnx.TensorProto.FLOAT16)
    x = net.op("Relu", net.conv(x, 3, 32))
    x = net.op("Sigmoid", net.conv(x, 32, 32))
    return net.model(net.op("Cast", x, to=onnx.TensorProto.FLOAT))


def double_between_casts() -> onnx.ModelProto:
    """Return a matmul in float64 whose input and result are float32."""
    net = Network("float64")
    x = net.op("Cast", net.input([64, 256], "float32"), to=onnx.TensorProto.DOUBLE)
    x = net.op("Tanh", net.dense(x, 256, 256))
    return net.model(net.op("Cast", x, to=onnx.TensorProto.FLOAT))


def two_precisions() -> onnx.ModelProto:
    """Return matmuls in float64, twice, with larger ones in float32 between."""
    net = Network("float32")
    x = net.input([64, 128])

    def precise(x: str) -> str:
        net.dtype = np.dtype("float64")
        x = net.op("Relu", net.dense(net.op("Cast", x, to=onnx.TensorProto.DOUBLE), 128, 128))
        x = net.op("Cast", net.dense(x, 128, 128), to=onnx.TensorProto.FLOAT)
        net.dtype = np.dtype("float32")
        return x

    first = precise(x)
    wide = net.dense(net.op("Relu", net.dense(first, 128, 512)), 512, 128)
    return net.model(net.op("Relu", net.op("Add", precise(wide), first)))
