"""Models of pictures that do not take all heights and widths, or are not the same at all."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info


def lines() -> onnx.ModelProto:
    """Return a reader of lines that are 8 high, of any width: a window over all of the height, and a row of vectors."""
    nodes = [
        make_node("Conv", ["x", "kernel"], ["seen"], pads=[0, 1, 0, 1]),
        make_node("Relu", ["seen"], ["kept"]),
        make_node("Squeeze", ["kept", "axis"], ["row"]),
        make_node("Transpose", ["row"], ["vectors"], perm=[0, 2, 1]),
        make_node("MatMul", ["vectors", "matrix"], ["y"]),
    ]
    weights = {"kernel": _normal(16, 3, 8, 3), "matrix": _normal(16, 5), "axis": np.array([2])}
    return _model(nodes, weights, rank=3)


def neck() -> onnx.ModelProto:
    """Return a picture that is halved twice and joined with itself while it grows again: it takes multiples of 4."""
    nodes = [
        make_node("Conv", ["x", "stem"], ["fine"], pads=[1, 1, 1, 1]),
        make_node("Relu", ["fine"], ["full"]),
        make_node("MaxPool", ["full"], ["half"], kernel_shape=[2, 2], strides=[2, 2]),
        make_node("Conv", ["half", "down"], ["quarter"], pads=[1, 1, 1, 1], strides=[2, 2]),
        make_node("Relu", ["quarter"], ["deep"]),
        make_node("ConvTranspose", ["deep", "up"], ["grown"], strides=[2, 2]),
        make_node("Concat", ["grown", "half"], ["both"], axis=1),
        make_node("Conv", ["both", "merge"], ["merged"], pads=[1, 1, 1, 1]),
        make_node("Resize", ["merged", "", "scales"], ["large"], mode="nearest",
                  coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
        make_node("Add", ["large", "full"], ["y"]),
    ]  # fmt: skip
    weights = {
        "stem": _normal(16, 3, 3, 3), "down": _normal(16, 16, 3, 3), "up": _normal(16, 16, 2, 2),
        "merge": _normal(16, 32, 3, 3), "scales": np.array([1, 1, 2, 2], np.float32),
    }  # fmt: skip
    return _model(nodes, weights)


def same_pads() -> onnx.ModelProto:
    """Return windows with a stride whose pads depend on what a division leaves of the size."""
    nodes = [
        make_node("Conv", ["x", "kernel"], ["seen"], auto_pad="SAME_UPPER", strides=[2, 2]),
        make_node("Relu", ["seen"], ["kept"]),
        make_node("MaxPool", ["kept"], ["y"], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    ]
    return _model(nodes, {"kernel": _normal(16, 3, 3, 3)})


def corners() -> onnx.ModelProto:
    """Return a picture that is halved, made as large again between the middles of its pixels, and read between its
    corners at steps that are no whole numbers."""
    nodes = [
        make_node("Conv", ["x", "kernel"], ["half"], pads=[1, 1, 1, 1], strides=[2, 2]),
        make_node("Relu", ["half"], ["kept"]),
        make_node("Resize", ["kept", "", "twice"], ["large"], mode="linear",
                  coordinate_transformation_mode="pytorch_half_pixel"),
        make_node("Resize", ["large", "", "scales"], ["y"], mode="linear",
                  coordinate_transformation_mode="align_corners"),
    ]  # fmt: skip
    scales = {"twice": np.array([1, 1, 2, 2], np.float32), "scales": np.array([1, 1, 3, 2], np.float32)}
    return _model(nodes, {"kernel": _normal(16, 3, 3, 3), **scales})


def _model(nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray], rank: int = 4) -> onnx.ModelProto:
    graph = make_graph(
        nodes,
        "pictures",
        [make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, "height", "width"])],
        [make_tensor_value_info("y", TensorProto.FLOAT, [None] * rank)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = make_model(graph, opset_imports=[make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def _normal(*shape: int) -> np.ndarray:
    values = np.random.default_rng(list(shape)).standard_normal(shape)
    return (values / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
