"""ONNX's light models: real graphs whose weights are one constant, replaced here by He-scaled random ones."""

from __future__ import annotations

import functools
import math
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from bench.zoo.model import Recipe
from bench.zoo.trained import package_file

_SEED = 20
_BATCH_NORM = "BatchNormalization"
# Input position of each operator's weights -> what it is.
_ROLES = {
    "Conv": {1: "weight", 2: "shift"},
    "Gemm": {1: "weight", 2: "shift"},
    _BATCH_NORM: {1: "factor", 2: "shift", 3: "mean", 4: "variance"},
}


def _build(name: str, path: Path) -> None:
    model = onnx.load(package_file("onnx", "backend", "test", "data", "light", f"{name}.onnx"))
    fill(model, np.random.default_rng(_SEED))
    calibrate(model, np.random.default_rng(_SEED))
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)


def fill(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Replace each ConstantOfShape weight of `model` by a random initializer of its role's distribution."""
    graph = model.graph
    known = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    roles = {
        node.input[position]: role
        for node in graph.node
        for position, role in _ROLES.get(node.op_type, {}).items()
        if position < len(node.input)
    }
    weights = {
        node.output[0]: _draw(roles[node.output[0]], tuple(known[node.input[0]]), rng)
        for node in graph.node
        if node.op_type == "ConstantOfShape"
    }
    kept = [node for node in graph.node if node.op_type != "ConstantOfShape"]
    used = {name for node in kept for name in node.input}
    tensors = [tensor for tensor in graph.initializer if tensor.name in used]
    tensors += [numpy_helper.from_array(value, name) for name, value in weights.items()]
    inputs = [value for value in graph.input if value.name in used and value.name not in {t.name for t in tensors}]
    graph.ClearField("node"), graph.ClearField("initializer"), graph.ClearField("input")
    graph.node.extend(kept), graph.initializer.extend(tensors), graph.input.extend(inputs)
    model.ir_version = 8


def _draw(role: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    if role == "weight":
        fan_in = math.prod(shape[1:])
        return (rng.standard_normal(shape) * math.sqrt(2 / fan_in)).astype(np.float32)
    if role == "factor":
        return rng.uniform(0.8, 1.2, shape).astype(np.float32)
    if role == "variance":
        return np.ones(shape, np.float32)
    return (rng.standard_normal(shape) * 0.1).astype(np.float32)


def calibrate(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Normalise every layer on one random image, in the order of the graph.

    A BatchNormalization gets the mean and variance of what reaches it. A Conv without one gets weights and bias that
    give each of its channels zero mean and unit variance, as trained networks without normalization roughly have
    (Kraehenbuehl et al., "Data-dependent initializations of convolutional neural networks", ICLR 2016).
    """
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    (value,) = model.graph.input
    image = rng.standard_normal([dim.dim_value for dim in value.type.tensor_type.shape.dim]).astype(np.float32)
    normalized = {node.input[0] for node in model.graph.node if node.op_type == _BATCH_NORM}
    for node in model.graph.node:
        if node.op_type == _BATCH_NORM:
            mean, variance = _statistics(model, node.input[0], {value.name: image})
            _store(tensors, {node.input[3]: mean, node.input[4]: variance})
        elif node.op_type == "Conv" and node.output[0] not in normalized:
            mean, variance = _statistics(model, node.output[0], {value.name: image})
            weight, bias = (numpy_helper.to_array(tensors[name]) for name in node.input[1:3])
            factor = 1 / np.sqrt(variance)
            scaled = weight * factor[:, None, None, None]
            _store(tensors, {node.input[1]: scaled, node.input[2]: (bias - mean) * factor})


def _store(tensors: dict[str, onnx.TensorProto], values: dict[str, np.ndarray]) -> None:
    for name, value in values.items():
        tensors[name].CopyFrom(numpy_helper.from_array(value, name))


def _statistics(model: onnx.ModelProto, name: str, feeds: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    activation = _activation(model, name, feeds)
    return activation.mean((0, 2, 3)), activation.var((0, 2, 3))


def _activation(model: onnx.ModelProto, name: str, feeds: dict[str, np.ndarray]) -> np.ndarray:
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    probe.graph.output.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    session = onnxruntime.InferenceSession(probe.SerializeToString(), providers=["CPUExecutionProvider"])
    (result,) = session.run([name], feeds)
    return np.asarray(result)


RECIPES = (
    Recipe("squeezenet", functools.partial(_build, "light_squeezenet"), {"data_0": (1, 3, 224, 224)}),
    Recipe("shufflenet", functools.partial(_build, "light_shufflenet"), {"gpu_0/data_0": (1, 3, 224, 224)}),
)
