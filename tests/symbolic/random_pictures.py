"""Random ONNX models of pictures of any height and width: windows without padding, and means over what they leave."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.symbolic.random_graph import Graph

_MOST_WINDOWS = 3
_CHANNELS = (8, 16, 24)


def random_pictures(seed: int) -> onnx.ModelProto:
    """Return the model of a seed, for float32 pictures of `batch` x 3 x `height` x `width` that are not tiny."""
    graph = Graph(np.random.default_rng((seed, 2)))
    name, channels = "x", 3
    for _ in range(1 + int(graph.rng.integers(_MOST_WINDOWS))):
        name, channels = _window(graph, name, channels)
        if graph.rng.integers(2):
            name = graph.add("Relu", [name], ())
    _mean(graph, name, channels)
    made = helper.make_graph(
        graph.nodes,
        f"pictures{seed}",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, "height", "width"])],
        [helper.make_tensor_value_info(graph.nodes[-1].output[0], TensorProto.FLOAT, None)],
        graph.weights,
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _window(graph: Graph, name: str, channels: int) -> tuple[str, int]:
    """Add a convolution or a pool without padding."""
    kernel = [int(extent) for extent in graph.rng.integers(1, 4, 2)]
    strides = [1 + int(extent) for extent in graph.rng.integers(4, size=2) == 0]
    if channels > 3 and graph.rng.integers(4) == 0:
        kind = str(graph.rng.choice(["MaxPool", "AveragePool"]))
        return graph.add(kind, [name], (), kernel_shape=kernel, strides=strides), channels
    if channels > 3 and graph.rng.integers(4) == 0:
        weight = graph.normal(channels, 1, *kernel)
        return graph.add("Conv", [name, weight], (), strides=strides, group=channels), channels
    width = int(graph.rng.choice(_CHANNELS))
    return graph.add("Conv", [name, graph.normal(width, channels, *kernel)], (), strides=strides), width


def _mean(graph: Graph, name: str, channels: int) -> None:
    """Add a mean over all pixels, alone, as a scale of what it is of, or before a product; or over the rows alone."""
    kind = graph.rng.integers(4)
    if kind == 0:
        graph.add("ReduceMean", [name], (), axes=[2], keepdims=0)
        return
    mean = graph.add("GlobalAveragePool", [name], ())
    if kind == 1:
        graph.add("Mul", [name, graph.add("Sigmoid", [mean], ())], ())
    if kind == 2:
        graph.add("MatMul", [graph.add("Flatten", [mean], ()), graph.normal(channels, 5)], ())
