"""Models of 5 to 30 common operators in float32: what fuses, in any order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from tests.fuzz.case import Case

Shape = tuple[int, ...]

_UNARY = ("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Erf", "HardSwish", "LeakyRelu", "Softplus", "Sin")
_BINARY = ("Add", "Sub", "Mul", "Max", "Min")
_LARGEST = 60_000
"""Elements of a tensor at most: a graph is for what it computes, not how long."""


@dataclass
class GraphMaker:
    """A graph in the making; `values` are those whose elements stay near 1, by name."""

    rng: np.random.Generator
    values: dict[str, Shape] = field(default_factory=dict)
    nodes: list[NodeProto] = field(default_factory=list)
    weights: list[TensorProto] = field(default_factory=list)

    def input(self) -> None:
        """Add an input of rank 2 to 4."""
        rank = int(self.rng.integers(2, 5))
        extents = self.rng.choice([1, 2, 3, 5, 7, 8, 12, 16, 17, 24, 33], rank)
        shape = (int(self.rng.integers(1, 3)), *map(int, extents[1:]))
        self.values[f"x{len(self.values)}"] = shape

    def weight(self, shape: Shape, scale: float = 1.0) -> str:
        """Add a constant of normal numbers; return its name."""
        array = (self.rng.standard_normal(shape) * scale).astype(np.float32)
        return self.constant(array)

    def constant(self, array: np.ndarray) -> str:
        """Add `array` as a constant; return its name."""
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def add(self, kind: str, inputs: Sequence[str], shape: Shape, **attributes: object) -> str:
        """Add a node with one output of `shape`; return the output's name."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        self.values[name] = shape
        return name

    def pick(self, where: Callable[[Shape], bool] = lambda shape: True) -> str | None:
        """Return a random value whose shape is fit, recent ones more often; None where there is none."""
        fit = [name for name, shape in self.values.items() if where(shape)]
        if not fit:
            return None
        return fit[-1 - min(int(self.rng.geometric(0.4)) - 1, len(fit) - 1)]

    def chance(self, share: float) -> bool:
        """Return True in `share` of the cases."""
        return bool(self.rng.random() < share)

    def one_of(self, *values: int) -> int:
        """Return one of `values`."""
        return int(self.rng.choice(values))


def make_case(seed: int) -> Case:
    """Return a model and normal numbers for its inputs; every second seed runs on two threads."""
    model = make_graph(seed)
    rng = np.random.default_rng(seed)
    inputs = {
        value.name: rng.standard_normal([dim.dim_value for dim in value.type.tensor_type.shape.dim]).astype(np.float32)
        for value in model.graph.input
    }
    return Case("large", seed, model.SerializeToString(), inputs, threads=1 + seed % 2)


def make_graph(seed: int) -> onnx.ModelProto:
    """Return a model of 5 to 30 operators with one or two inputs and up to four outputs."""
    maker = GraphMaker(np.random.default_rng(seed))
    for _ in range(maker.one_of(1, 1, 2)):
        maker.input()
    inputs = dict(maker.values)
    wanted = int(maker.rng.integers(5, 31))
    while len(maker.nodes) < wanted:
        _STEPS[int(maker.rng.integers(len(_STEPS)))](maker)
    read = {name for node in maker.nodes for name in node.input}
    ends = [name for name in maker.values if name not in read and name not in inputs]
    extra = [name for name in maker.values if name in read and name not in inputs and maker.chance(0.05)]
    graph = helper.make_graph(
        maker.nodes, f"random_{seed}", [_info(name, shape) for name, shape in inputs.items()],
        [_info(name, maker.values[name]) for name in [*ends, *extra]], maker.weights,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _info(name: str, shape: Shape) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _unary(maker: GraphMaker) -> None:
    name = maker.pick()
    assert name is not None
    maker.add(str(maker.rng.choice(_UNARY)), [name], maker.values[name])


def _binary(maker: GraphMaker) -> None:
    """With a value of the same shape, a constant that broadcasts, or another value that does."""
    name = maker.pick()
    assert name is not None
    shape = maker.values[name]
    other = maker.pick(lambda candidate: _broadcasts(candidate, shape)) if maker.chance(0.6) else None
    if other is None:
        kept = tuple(extent if maker.chance(0.5) else 1 for extent in shape)
        other = maker.weight(kept[maker.one_of(0, 0, 1) :] if kept[:1] == (1,) else kept)
    operands = [name, other] if maker.chance(0.7) else [other, name]
    made = maker.add(str(maker.rng.choice(_BINARY)), operands, shape)
    if maker.chance(0.5):
        maker.add("Tanh", [made], shape)


def _broadcasts(source: Shape, target: Shape) -> bool:
    padded = (1,) * (len(target) - len(source)) + source
    return len(source) <= len(target) and all(a in (1, b) for a, b in zip(padded, target, strict=True))


def _divide(maker: GraphMaker) -> None:
    name = maker.pick()
    assert name is not None
    shape = maker.values[name]
    positive = maker.add("Exp", [maker.add("Tanh", [name], shape)], shape)
    maker.add("Div", [name, positive], shape)


def _reduce(maker: GraphMaker) -> None:
    name = maker.pick()
    assert name is not None
    shape = maker.values[name]
    axes = sorted({int(axis) for axis in maker.rng.integers(0, len(shape), maker.one_of(1, 1, 2))})
    keep = maker.chance(0.7) or len(axes) == len(shape)
    left = tuple(1 if axis in axes else extent for axis, extent in enumerate(shape) if keep or axis not in axes)
    kind = str(maker.rng.choice(["ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2"]))
    made = maker.add(kind, [name], left, axes=axes, keepdims=int(keep))
    if keep and maker.chance(0.6):
        maker.add("Sub", [name, made], shape)


def _normalize(maker: GraphMaker) -> None:
    name = maker.pick()
    assert name is not None
    shape = maker.values[name]
    if maker.chance(0.5):
        maker.add("Softmax", [name], shape, axis=int(maker.rng.integers(-1, len(shape))))
        return
    axis = int(maker.rng.integers(0, len(shape)))
    # Rows of one or two elements have variances around zero, which decide the result by their rounding.
    if prod(shape[axis:]) > 4:
        scale, bias = (maker.weight(shape[axis:]) for _ in range(2))
        maker.add("LayerNormalization", [name, scale, bias], shape, axis=axis, epsilon=0.1)


def _reshape(maker: GraphMaker) -> None:
    name = maker.pick()
    assert name is not None
    shape = maker.values[name]
    merged, at = list(shape), int(maker.rng.integers(0, max(1, len(shape) - 1)))
    if len(shape) > 1 and maker.chance(0.5):
        merged[at : at + 2] = [shape[at] * shape[at + 1]]
    else:
        divisors = [d for d in range(1, shape[at] + 1) if shape[at] % d == 0]
        first = maker.one_of(*divisors)
        merged[at : at + 1] = [first, shape[at] // first]
    if 2 <= len(merged) <= 5:
        maker.add("Reshape", [name, maker.constant(np.array(merged, np.int64))], tuple(merged))


def _transpose(maker: GraphMaker) -> None:
    name = maker.pick()
    assert name is not None
    shape = maker.values[name]
    order = [int(axis) for axis in maker.rng.permutation(len(shape))]
    maker.add("Transpose", [name], tuple(shape[axis] for axis in order), perm=order)


def _concat(maker: GraphMaker) -> None:
    name = maker.pick()
    assert name is not None
    shape = maker.values[name]
    axis = int(maker.rng.integers(0, len(shape)))
    kept = shape[:axis], shape[axis + 1 :]
    fit = [
        other for other, found in maker.values.items()
        if len(found) == len(shape) and (found[:axis], found[axis + 1 :]) == kept
    ]  # fmt: skip
    chosen = [name, *(str(other) for other in maker.rng.choice(fit, maker.one_of(1, 2)))]
    total = sum(maker.values[other][axis] for other in chosen)
    result = (*shape[:axis], total, *shape[axis + 1 :])
    if prod(result) <= _LARGEST:
        maker.add("Concat", chosen, result, axis=axis)


def _split(maker: GraphMaker) -> None:
    name = maker.pick(lambda shape: max(shape) > 1)
    if name is None:
        return
    shape = maker.values[name]
    axis = int(np.argmax(shape)) if maker.chance(0.5) else len(shape) - 1
    if shape[axis] < 2:
        return
    cut = int(maker.rng.integers(1, shape[axis]))
    sizes = maker.constant(np.array([cut, shape[axis] - cut], np.int64))
    outputs = [f"s{len(maker.nodes)}_{part}" for part in range(2)]
    maker.nodes.append(helper.make_node("Split", [name, sizes], outputs, axis=axis))
    for output, size in zip(outputs, (cut, shape[axis] - cut), strict=True):
        maker.values[output] = (*shape[:axis], size, *shape[axis + 1 :])


def _slice(maker: GraphMaker) -> None:
    name = maker.pick()
    assert name is not None
    shape = maker.values[name]
    axis = int(maker.rng.integers(0, len(shape)))
    if maker.chance(0.4):
        picked = maker.rng.integers(0, shape[axis], maker.one_of(1, 3, 6))
        result = (*shape[:axis], len(picked), *shape[axis + 1 :])
        maker.add("Gather", [name, maker.constant(picked.astype(np.int64))], result, axis=axis)
        return
    step, begin = maker.one_of(1, 1, 2, 3), int(maker.rng.integers(0, shape[axis]))
    end = int(maker.rng.integers(begin + 1, shape[axis] + 1))
    parts = [maker.constant(np.array([part], np.int64)) for part in (begin, end, axis, step)]
    maker.add("Slice", [name, *parts], (*shape[:axis], -(-(end - begin) // step), *shape[axis + 1 :]))


def _pad(maker: GraphMaker) -> None:
    name = maker.pick()
    assert name is not None
    shape = maker.values[name]
    before, after = (maker.rng.integers(0, 3, len(shape)) * (maker.rng.random(len(shape)) < 0.5) for _ in range(2))
    result = tuple(int(extent + a + b) for extent, a, b in zip(shape, before, after, strict=True))
    if prod(result) <= _LARGEST:
        maker.add("Pad", [name, maker.constant(np.array([*before, *after], np.int64))], result)


def _matmul(maker: GraphMaker) -> None:
    """With constant weights, or with another value, transposed where only then it fits."""
    name = maker.pick(lambda shape: len(shape) > 1)
    if name is None:
        return
    shape = maker.values[name]
    depth = shape[-1]
    if maker.chance(0.6):
        columns = maker.one_of(1, 3, 8, 16, 20, 33)
        if prod(shape[:-1]) * columns <= _LARGEST:
            maker.add("MatMul", [name, maker.weight((depth, columns), depth**-0.5)], (*shape[:-1], columns))
        return
    other = maker.pick(lambda found: len(found) == len(shape) and found[:-2] == shape[:-2] and found[-1] == depth)
    assert other is not None, "it fits itself"
    found = maker.values[other]
    order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    turned = maker.add("Transpose", [other], (*found[:-2], depth, found[-2]), perm=order)
    result = (*shape[:-1], found[-2])
    product = maker.add("MatMul", [name, turned], result)
    scores = maker.add("Mul", [product, maker.constant(np.float32(1 / depth))], result)
    if maker.chance(0.6):
        weights = maker.add("Softmax", [scores], result, axis=-1)
        maker.add("MatMul", [weights, other], (*shape[:-1], found[-1]))


def _image(maker: GraphMaker) -> str | None:
    return maker.pick(lambda shape: len(shape) == 4 and shape[2] > 2 and shape[3] > 2)


def _convolve(maker: GraphMaker) -> None:
    name = _image(maker)
    if name is None:
        return
    batch, channels, height, width = maker.values[name]
    groups = channels if maker.chance(0.3) else 1
    out = channels * maker.one_of(1, 1, 2) if groups > 1 else maker.one_of(3, 8, 16, 20, 33)
    kernel, stride = maker.one_of(1, 1, 3, 3, 5), maker.one_of(1, 1, 2)
    pads, step = [int(n) for n in maker.rng.integers(0, kernel // 2 + 1, 4)], maker.one_of(1, 1, 2)
    span = (kernel - 1) * step + 1
    down, across = height + pads[0] + pads[2] - span, width + pads[1] + pads[3] - span
    result = batch, out, down // stride + 1, across // stride + 1
    if min(down, across) < 0 or prod(result) > _LARGEST:
        return
    depth = channels // groups
    inputs = [name, maker.weight((out, depth, kernel, kernel), (depth * kernel * kernel) ** -0.5)]
    if maker.chance(0.5):
        inputs.append(maker.weight((out,)))
    made = maker.add(
        "Conv", inputs, result, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads, group=groups,
        dilations=[step] * 2,
    )  # fmt: skip
    if maker.chance(0.5):
        maker.add(str(maker.rng.choice(["Relu", "HardSwish", "Sigmoid"])), [made], result)


def _deconvolve(maker: GraphMaker) -> None:
    name = _image(maker)
    if name is None:
        return
    batch, channels, height, width = maker.values[name]
    kernel, stride, out = maker.one_of(2, 3, 4), maker.one_of(1, 2), maker.one_of(1, 3, 12, 20)
    pad = int(maker.rng.integers(0, kernel // 2 + 1))
    result = batch, out, *((extent - 1) * stride + kernel - 2 * pad for extent in (height, width))
    if min(result) > 0 and prod(result) <= _LARGEST:
        weight = maker.weight((channels, out, kernel, kernel), (channels * kernel) ** -0.5)
        maker.add("ConvTranspose", [name, weight], result, strides=[stride] * 2, pads=[pad] * 4)


def _pool(maker: GraphMaker) -> None:
    name = _image(maker)
    if name is None:
        return
    batch, channels, height, width = maker.values[name]
    if maker.chance(0.3):
        maker.add("GlobalAveragePool", [name], (batch, channels, 1, 1))
        return
    kernel, stride = maker.one_of(2, 3), maker.one_of(1, 2)
    result = batch, channels, (height - kernel) // stride + 1, (width - kernel) // stride + 1
    kind = str(maker.rng.choice(["MaxPool", "AveragePool"]))
    maker.add(kind, [name], result, kernel_shape=[kernel] * 2, strides=[stride] * 2)


_STEPS: tuple[Callable[[GraphMaker], None], ...] = (
    _unary, _unary, _binary, _binary, _binary, _divide, _reduce, _normalize, _reshape, _transpose, _concat, _split,
    _slice, _pad, _matmul, _matmul, _convolve, _convolve, _deconvolve, _pool,
)  # fmt: skip
