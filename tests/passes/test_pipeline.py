"""Whole compilations against ONNX Runtime under the float64 gate: graphs that mix operators, and random ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import fusion
from bench import gate
from bench.reference.evaluate import evaluate
from tests.passes.random_graphs import random_graph
from tests.targets import AVX2, runs_here

TARGETS = ("llvm", *filter(runs_here, (AVX2,)))
Graph = tuple[list[onnx.NodeProto], dict[str, tuple[int, ...]], dict[str, tuple[int, ...]], dict[str, np.ndarray]]
node = helper.make_node


def weight(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(list(shape)).standard_normal(shape) * scale).astype("float32")


def check(model: onnx.ModelProto, feeds: dict[str, np.ndarray], folder: Path, target: str, threads: int) -> None:
    """Compile `model` without fallback and judge its outputs."""
    onnx.save(model, folder / "model.onnx")
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [output.name for output in model.graph.output]
    baseline = dict(zip(names, session.run(names, feeds), strict=True))
    compiled = fusion.compile(model, target, threads=threads, strict=True)
    verdict = gate.Verdict()
    gate.judge(verdict, compiled.run(feeds), baseline, evaluate(folder / "model.onnx", feeds))
    assert verdict.passed, f"{verdict.reasons}\n{compiled.explain()}"


def residual_block() -> Graph:
    """conv - batch norm - relu - conv - add - relu, and a strided 1x1 branch."""
    norm = [weight(24), weight(24), weight(24), np.abs(weight(24)) + 0.5]
    nodes = [
        node("Conv", ["x", "first"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("BatchNormalization", ["a", "g", "b", "m", "v"], ["n"]),
        node("Relu", ["n"], ["r"]),
        node("Conv", ["r", "second", "bias"], ["c"], pads=[1, 1, 1, 1]),
        node("Conv", ["x", "short"], ["s"], strides=[2, 2]),
        node("Add", ["c", "s"], ["sum"]),
        node("Relu", ["sum"], ["y"]),
    ]
    weights = {
        "first": weight(24, 5, 3, 3),
        "second": weight(24, 24, 3, 3),
        "bias": weight(24),
        "short": weight(24, 5, 1, 1),
    }
    return nodes, {"x": (2, 5, 15, 13)}, {"y": (2, 24, 8, 7)}, weights | dict(zip("gbmv", norm, strict=True))


def squeeze_excite() -> Graph:
    """A depthwise convolution whose channels are scaled by a sigmoid of their own means."""
    nodes = [
        node("Conv", ["x", "depthwise"], ["d"], pads=[2, 2, 2, 2], group=19),
        node("GlobalAveragePool", ["d"], ["p"]),
        node("Conv", ["p", "down"], ["q"]),
        node("Relu", ["q"], ["r"]),
        node("Conv", ["r", "up"], ["u"]),
        node("HardSigmoid", ["u"], ["s"]),
        node("Mul", ["d", "s"], ["y"]),
    ]
    weights = {"depthwise": weight(19, 1, 5, 5), "down": weight(4, 19, 1, 1), "up": weight(19, 4, 1, 1)}
    return nodes, {"x": (1, 19, 9, 11)}, {"y": (1, 19, 9, 11)}, weights


def shuffle_unit() -> Graph:
    """Split channels, convolve one half, join and shuffle."""
    nodes = [
        node("Split", ["x"], ["a", "b"], axis=1),
        node("Conv", ["b", "w"], ["c"], pads=[1, 1, 1, 1], group=12),
        node("Relu", ["c"], ["r"]),
        node("Concat", ["a", "r"], ["j"], axis=1),
        node("Reshape", ["j", "split"], ["s"]),
        node("Transpose", ["s"], ["t"], perm=[0, 2, 1, 3, 4]),
        node("Reshape", ["t", "joined"], ["y"]),
    ]
    weights = {"w": weight(12, 1, 3, 3), "split": np.array([1, 2, 12, 7, 7]), "joined": np.array([1, 24, 7, 7])}
    return nodes, {"x": (1, 24, 7, 7)}, {"y": (1, 24, 7, 7)}, weights


def attention() -> Graph:
    """Two heads with a mask, and the residual sum normalised."""
    heads = [node("Reshape", [f"{n}m", "heads"], [f"{n}r"]) for n in "qkv"]
    turned = [node("Transpose", [f"{n}r"], [n], perm=[0, 2, 3, 1] if n == "k" else [0, 2, 1, 3]) for n in "qkv"]
    nodes = [
        *(node("MatMul", ["x", f"w{n}"], [f"{n}m"]) for n in "qkv"),
        *heads,
        *turned,
        node("MatMul", ["q", "k"], ["scores"]),
        node("Div", ["scores", "root"], ["scaled"]),
        node("Add", ["scaled", "mask"], ["masked"]),
        node("Softmax", ["masked"], ["p"], axis=-1),
        node("MatMul", ["p", "v"], ["o"]),
        node("Transpose", ["o"], ["ot"], perm=[0, 2, 1, 3]),
        node("Reshape", ["ot", "flat"], ["of"]),
        node("MatMul", ["of", "wo"], ["proj"]),
        node("Add", ["x", "proj"], ["sum"]),
        node("LayerNormalization", ["sum", "gamma", "beta"], ["y"], axis=-1),
    ]
    square = {f"w{n}": weight(32, 32, scale=0.2) + i for i, n in enumerate("qkvo")}
    shapes = {"heads": np.array([2, 11, 2, 16]), "flat": np.array([2, 11, 32])}
    others = {"root": np.float32(4), "gamma": weight(32), "beta": weight(32)}
    return nodes, {"x": (2, 11, 32), "mask": (2, 1, 1, 11)}, {"y": (2, 11, 32)}, square | shapes | others


def patches() -> Graph:
    """The start of a ViT: a strided convolution, flattened, transposed, with a class token and positions."""
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], strides=[4, 4]),
        node("Reshape", ["c", "shape"], ["r"]),
        node("Transpose", ["r"], ["t"], perm=[0, 2, 1]),
        node("Concat", ["token", "t"], ["j"], axis=1),
        node("Add", ["j", "positions"], ["y"]),
    ]
    weights = {"w": weight(20, 3, 4, 4), "b": weight(20), "shape": np.array([1, 20, -1])}
    weights |= {"token": weight(1, 1, 20), "positions": weight(1, 13, 20)}
    return nodes, {"x": (1, 3, 16, 12)}, {"y": (1, 13, 20)}, weights


def feature_pyramid() -> Graph:
    """A coarse map upsampled onto a fine one; both are outputs."""
    nodes = [
        node("Conv", ["x", "fine"], ["f"], pads=[1, 1, 1, 1]),
        node("MaxPool", ["f"], ["p"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Conv", ["p", "coarse"], ["c"], pads=[1, 1, 1, 1]),
        node(
            "Resize",
            ["c", "", "scales"],
            ["u"],
            mode="nearest",
            nearest_mode="floor",
            coordinate_transformation_mode="asymmetric",
        ),
        node("Add", ["f", "u"], ["y"]),
        node("ConvTranspose", ["c", "up"], ["z"], strides=[2, 2]),
        node("Sigmoid", ["z"], ["m"]),
    ]
    weights = {"fine": weight(16, 3, 3, 3), "coarse": weight(16, 16, 3, 3), "up": weight(16, 1, 2, 2)}
    weights["scales"] = np.float32([1, 1, 2, 2])
    return nodes, {"x": (1, 3, 12, 20)}, {"y": (1, 16, 12, 20), "c": (1, 16, 6, 10), "m": (1, 1, 12, 20)}, weights


def embedding() -> Graph:
    """Rows gathered from a table, moved by the input, their mean, and the largest of each feature."""
    nodes = [
        node("Gather", ["table", "ids"], ["e"]),
        node("Add", ["e", "x"], ["a"]),
        node("LayerNormalization", ["a", "gamma", "beta"], ["n"], axis=-1),
        node("ReduceMean", ["n"], ["mean"], axes=[1], keepdims=0),
        node("ReduceMax", ["n"], ["max"], axes=[1], keepdims=0),
        node("Concat", ["mean", "max"], ["j"], axis=-1),
        node("Gemm", ["j", "w", "b"], ["y"], transB=1),
    ]
    weights = {"table": weight(50, 24), "gamma": weight(24), "beta": weight(24)}
    weights |= {"w": weight(7, 48, scale=0.2), "b": weight(7), "ids": np.random.default_rng(0).integers(0, 50, (3, 9))}
    return nodes, {"x": (3, 9, 24)}, {"y": (3, 7)}, weights


def gated_sequence() -> Graph:
    """A one-dimensional convolution whose halves gate each other, with strided and reversed slices."""
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[3, 0], dilations=[3]),
        node("Split", ["c"], ["a", "b"], axis=1),
        node("Tanh", ["a"], ["t"]),
        node("Sigmoid", ["b"], ["s"]),
        node("Mul", ["t", "s"], ["g"]),
        node("Slice", ["g", "start", "end", "axes", "steps"], ["r"]),
        node("ReduceSum", ["r", "axes"], ["y"], keepdims=1),
    ]
    weights = {"w": weight(18, 5, 2), "start": np.array([-1]), "end": np.array([-(2**40)])}
    weights |= {"axes": np.array([2]), "steps": np.array([-2])}
    return nodes, {"x": (2, 5, 21)}, {"y": (2, 9, 1), "g": (2, 9, 21)}, weights


def grouped_bottleneck() -> Graph:
    """A grouped convolution between 1x1 ones with asymmetric padding, and a residual of other size."""
    nodes = [
        node("Conv", ["x", "in"], ["a"]),
        node("Clip", ["a", "zero", "six"], ["ac"]),
        node("Conv", ["ac", "group"], ["b"], pads=[0, 1, 2, 1], group=4, strides=[1, 2]),
        node("LeakyRelu", ["b"], ["bl"], alpha=0.2),
        node("Conv", ["bl", "out"], ["c"]),
        node("AveragePool", ["x"], ["p"], kernel_shape=[1, 2], strides=[1, 2]),
        node("Concat", ["c", "p"], ["y"], axis=1),
    ]
    weights = {"in": weight(20, 6, 1, 1), "group": weight(12, 5, 3, 3), "out": weight(9, 12, 1, 1)}
    return nodes, {"x": (1, 6, 8, 14)}, {"y": (1, 15, 8, 7)}, weights | {"zero": np.float32(0), "six": np.float32(6)}


def shared_statistics() -> Graph:
    """A diamond: two reductions of one tensor, both broadcast back, and the tensor itself returned."""
    nodes = [
        node("Exp", ["x"], ["e"]),
        node("ReduceSum", ["e", "axes"], ["s"], keepdims=1),
        node("ReduceMax", ["e"], ["m"], axes=[2], keepdims=1),
        node("Div", ["e", "s"], ["p"]),
        node("Sub", ["p", "m"], ["d"]),
        node("Mul", ["d", "d"], ["y"]),
    ]
    return nodes, {"x": (3, 4, 37)}, {"y": (3, 4, 37), "e": (3, 4, 37)}, {"axes": np.array([2])}


GRAPHS = [
    residual_block, squeeze_excite, shuffle_unit, attention, patches, feature_pyramid, embedding, gated_sequence,
    grouped_bottleneck, shared_statistics,
]  # fmt: skip


def model_of(graph: Callable[[], Graph]) -> onnx.ModelProto:
    """Return one of `GRAPHS` as a model."""
    nodes, inputs, outputs, weights = graph()
    info = lambda values: [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in values.items()]  # noqa: E731
    constants = [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()]
    made = helper.make_graph(nodes, graph.__name__, info(inputs), info(outputs), constants)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.__name__)
def test_graphs_that_mix_operators(graph: Callable[[], Graph], tmp_path: Path) -> None:
    model, (_, inputs, *_) = model_of(graph), graph()
    for index, target in enumerate(TARGETS):
        feeds = {
            name: np.random.default_rng(index).standard_normal(shape).astype("float32")
            for name, shape in inputs.items()
        }
        check(model, feeds, tmp_path, target, threads=2 - index)


@pytest.mark.parametrize("seed", range(20))
def test_random_graphs(seed: int, tmp_path: Path) -> None:
    """`random_graph(seed)` makes the same graph again, to look at what failed."""
    model, feeds = random_graph(seed)
    check(model, feeds, tmp_path, TARGETS[seed % len(TARGETS)], threads=1 + seed % 3)
