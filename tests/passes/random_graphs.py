"""Random ONNX graphs of a few operators on small tensors with every kind of edge, made from a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod

import numpy as np
import onnx
from onnx import helper, numpy_helper

Shape = tuple[int, ...]
MAX_ELEMENTS = 20_000


@dataclass
class Draft:
    """A graph under construction: every tensor made so far with its shape."""

    rng: np.random.Generator
    shapes: dict[str, Shape] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    used: set[str] = field(default_factory=set)

    def number(self, low: int, high: int) -> int:
        """Return a whole number from `low` to `high`, both included."""
        return int(self.rng.integers(low, high + 1))

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def pick(self, choices: list) -> object:
        return choices[self.number(0, len(choices) - 1)]

    def tensor(self, ranks: range = range(0, 6)) -> str:
        """Return a tensor of one of the ranks, a recent one more likely; a new input where there is none."""
        known = [name for name, shape in self.shapes.items() if len(shape) in ranks]
        if not known or self.chance(0.05):
            return self.input(self.shape(self.number(max(1, ranks.start), min(4, ranks.stop - 1))))
        return known[-1 - min(int(self.rng.exponential(2)), len(known) - 1)]

    def shape(self, rank: int) -> Shape:
        """Return extents that are often 1, sometimes a multiple of a vector, mostly odd sizes."""
        sizes = [1, 2, 3, 5, 7, 8, 12, 16, 17, 19, 24, 32, 33]
        shape = tuple(int(self.pick(sizes)) for _ in range(rank))
        return shape if prod(shape) <= MAX_ELEMENTS else self.shape(rank)

    def input(self, shape: Shape) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs.append(name)
        self.shapes[name] = shape
        return name

    def weight(self, shape: Shape, scale: float = 1.0) -> str:
        return self.constant((self.rng.standard_normal(shape) * scale).astype("float32"))

    def constant(self, array: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def emit(self, op: str, inputs: list[str], shape: Shape, outputs: list[str] | None = None, **attrs: object) -> str:
        """Add a node; returns its first output."""
        outputs = outputs or [f"t{len(self.shapes)}"]
        self.nodes.append(helper.make_node(op, inputs, outputs, **attrs))
        self.used.update(inputs)
        self.shapes.update(dict.fromkeys(outputs, shape))
        return outputs[0]


def unary(d: Draft) -> None:
    x = d.tensor()
    op = d.pick(
        [
            "Relu",
            "Sigmoid",
            "Tanh",
            "Neg",
            "Abs",
            "Erf",
            "LeakyRelu",
            "HardSwish",
            "Softplus",
            "Sin",
            "Exp",
            "Sqrt",
            "Elu",
        ]
    )
    if op == "Exp":
        x = d.emit("Tanh", [x], d.shapes[x])
    if op == "Sqrt":
        x = d.emit("Softplus", [x], d.shapes[x])
    d.emit(str(op), [x], d.shapes[x])


def swish(d: Draft) -> None:
    x = d.tensor()
    d.emit("Mul", [x, d.emit("Sigmoid", [x], d.shapes[x])], d.shapes[x])


def broadcast_to(d: Draft, shape: Shape) -> str:
    """Return a tensor that broadcasts against `shape`: one made before where there is one, or a constant."""
    fitting = [name for name, other in d.shapes.items() if len(other) <= len(shape) and _broadcasts(other, shape)]
    if fitting and d.chance(0.7):
        return str(d.pick(fitting))
    kept = shape[d.number(0, len(shape)) :] if d.chance(0.5) else shape
    return d.weight(tuple(1 if d.chance(0.4) else extent for extent in kept))


def _broadcasts(small: Shape, large: Shape) -> bool:
    own = large[len(large) - len(small) :]
    return all(extent in (1, full) for extent, full in zip(small, own, strict=True))


def binary(d: Draft) -> None:
    x = d.tensor()
    y = broadcast_to(d, d.shapes[x])
    op = str(d.pick(["Add", "Sub", "Mul", "Max", "Min"]))
    d.emit(op, [x, y] if d.chance(0.7) else [y, x], d.shapes[x])


def divide(d: Draft) -> None:
    x = d.tensor()
    y = broadcast_to(d, d.shapes[x])
    shape = d.shapes.get(y, d.shapes[x])
    if y not in d.shapes:
        d.emit("Div", [x, d.constant(np.float32([1.7]))], d.shapes[x])
        return
    safe = d.emit("Add", [d.emit("Softplus", [y], shape), d.constant(np.float32(0.5))], shape)
    d.emit("Div", [x, safe], d.shapes[x])


def outer_broadcast(d: Draft) -> None:
    """Both operands grow: (n, 1) with (m,)."""
    x = d.tensor(range(1, 4))
    shape = d.shapes[x]
    if prod(shape) * 5 > MAX_ELEMENTS:
        return
    column = d.emit("Unsqueeze", [x, d.constant(np.array([len(shape)]))], (*shape, 1))
    d.emit("Add", [column, d.weight((5,))], (*shape, 5))


def reduce(d: Draft) -> None:
    x = d.tensor(range(1, 6))
    shape = d.shapes[x]
    axes = sorted({d.number(0, len(shape) - 1) for _ in range(d.number(1, 2))})
    keep = d.chance(0.6)
    left = tuple(1 if axis in axes else extent for axis, extent in enumerate(shape) if keep or axis not in axes)
    op = str(d.pick(["ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum", "ReduceL2"]))
    named = [axis - len(shape) if d.chance(0.3) else axis for axis in axes]
    if op == "ReduceSum":
        d.emit(op, [x, d.constant(np.array(named))], left, keepdims=int(keep))
    else:
        d.emit(op, [x], left, axes=named, keepdims=int(keep))


def softmax(d: Draft) -> None:
    x = d.tensor(range(1, 6))
    rank = len(d.shapes[x])
    d.emit(str(d.pick(["Softmax", "LogSoftmax"])), [x], d.shapes[x], axis=d.number(-rank, rank - 1))


def layer_norm(d: Draft) -> None:
    x = d.tensor(range(2, 6))
    shape = d.shapes[x]
    axis = d.number(1, len(shape) - 1)
    weights = [d.weight(shape[axis:]) for _ in range(2)]
    d.emit("LayerNormalization", [x, *weights], shape, axis=axis, epsilon=0.1)


def instance_norm(d: Draft) -> None:
    x = d.tensor(range(3, 6))
    channels = d.shapes[x][1]
    d.emit("InstanceNormalization", [x, d.weight((channels,)), d.weight((channels,))], d.shapes[x], epsilon=0.1)


def batch_norm(d: Draft) -> None:
    x = d.tensor(range(2, 6))
    channels = d.shapes[x][1]
    variance = d.constant(d.rng.uniform(0.5, 2, channels).astype("float32"))
    d.emit("BatchNormalization", [x, *(d.weight((channels,)) for _ in range(3)), variance], d.shapes[x])


def reshape(d: Draft) -> None:
    x = d.tensor(range(1, 6))
    factors = [p for extent in d.shapes[x] for p in _primes(extent)]
    if d.chance(0.3):
        d.rng.shuffle(factors)
    count = d.number(1, 5)
    cuts = sorted(d.number(0, len(factors)) for _ in range(count - 1))
    parts = [factors[i:j] for i, j in zip([0, *cuts], [*cuts, len(factors)], strict=True)]
    shape = tuple(prod(part) for part in parts)
    d.emit("Reshape", [x, d.constant(np.array(shape, "int64"))], shape)


def _primes(number: int) -> list[int]:
    found, factor = [], 2
    while number > 1:
        while number % factor == 0:
            found.append(factor)
            number //= factor
        factor += 1
    return found


def transpose(d: Draft) -> None:
    x = d.tensor(range(2, 6))
    axes = [int(axis) for axis in d.rng.permutation(len(d.shapes[x]))]
    d.emit("Transpose", [x], tuple(d.shapes[x][axis] for axis in axes), perm=axes)


def channel_shuffle(d: Draft) -> None:
    x = d.tensor(range(4, 5))
    n, c, h, w = d.shapes[x]
    groups = next((g for g in (2, 3, 5, 7) if c % g == 0), 1)
    split = d.emit("Reshape", [x, d.constant(np.array([n, groups, c // groups, h, w]))], (n, groups, c // groups, h, w))
    turned = d.emit("Transpose", [split], (n, c // groups, groups, h, w), perm=[0, 2, 1, 3, 4])
    d.emit("Reshape", [turned, d.constant(np.array([n, c, h, w]))], (n, c, h, w))


def concat(d: Draft) -> None:
    x = d.tensor(range(1, 6))
    shape = d.shapes[x]
    axis = d.number(0, len(shape) - 1)
    fitting = [n for n, o in d.shapes.items() if len(o) == len(shape) and _without(o, axis) == _without(shape, axis)]
    parts = [str(d.pick(fitting)) if d.chance(0.8) else d.weight(shape) for _ in range(d.number(1, 3))]
    total = shape[axis] + sum(d.shapes.get(part, shape)[axis] for part in parts)
    joined = (*shape[:axis], total, *shape[axis + 1 :])
    if prod(joined) <= MAX_ELEMENTS:
        d.emit("Concat", [x, *parts], joined, axis=axis if d.chance(0.5) else axis - len(shape))


def _without(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], *shape[axis + 1 :])


def split(d: Draft) -> None:
    x = d.tensor(range(1, 6))
    shape = d.shapes[x]
    axis = max(range(len(shape)), key=lambda a: (shape[a] > 1, d.rng.random()))
    if shape[axis] == 1:
        return
    first = d.number(1, shape[axis] - 1)
    names = [f"t{len(d.shapes)}a", f"t{len(d.shapes)}b"]
    sizes = d.constant(np.array([first, shape[axis] - first]))
    d.emit("Split", [x, sizes], shape, outputs=names, axis=axis)
    for name, size in zip(names, (first, shape[axis] - first), strict=True):
        d.shapes[name] = (*shape[:axis], size, *shape[axis + 1 :])


def slice_(d: Draft) -> None:
    x = d.tensor(range(1, 6))
    shape = d.shapes[x]
    axis = d.number(0, len(shape) - 1)
    start, step = d.number(0, shape[axis] - 1), d.number(1, 3)
    if d.chance(0.2):
        size, bounds = -(-(start + 1) // step), (start, -shape[axis] - 1, axis, -step)
    else:
        size, bounds = -(-(shape[axis] - start) // step), (start, 10**6, axis, step)
    d.emit("Slice", [x, *(d.constant(np.array([b])) for b in bounds)], (*shape[:axis], size, *shape[axis + 1 :]))


def pad(d: Draft) -> None:
    x = d.tensor(range(1, 6))
    shape = d.shapes[x]
    widths = [d.number(0, 2) if d.chance(0.5) else 0 for _ in range(2 * len(shape))]
    padded = tuple(n + a + b for n, a, b in zip(shape, widths[: len(shape)], widths[len(shape) :], strict=True))
    if prod(padded) <= MAX_ELEMENTS:
        d.emit("Pad", [x, d.constant(np.array(widths)), d.constant(np.float32(d.number(0, 1)))], padded)


def gather(d: Draft) -> None:
    x = d.tensor(range(1, 6))
    shape = d.shapes[x]
    axis = d.number(0, len(shape) - 1)
    which = tuple(d.number(1, 4) for _ in range(d.number(0, 2)))
    made = (*shape[:axis], *which, *shape[axis + 1 :])
    if prod(made) <= MAX_ELEMENTS and len(made) < 6:
        d.emit(
            "Gather",
            [x, d.constant(np.array(d.rng.integers(-shape[axis], shape[axis], which), "int64"))],
            made,
            axis=axis,
        )


def squeeze(d: Draft) -> None:
    x = d.tensor(range(1, 6))
    shape = d.shapes[x]
    ones = [axis for axis, extent in enumerate(shape) if extent == 1]
    if ones and d.chance(0.5):
        axis = int(d.pick(ones))
        d.emit("Squeeze", [x, d.constant(np.array([axis]))], _without(shape, axis))
    elif len(shape) < 5:
        axis = d.number(0, len(shape))
        d.emit("Unsqueeze", [x, d.constant(np.array([axis]))], (*shape[:axis], 1, *shape[axis:]))


def expand(d: Draft) -> None:
    x = d.tensor(range(1, 5))
    shape = tuple(3 if extent == 1 else extent for extent in d.shapes[x])
    if prod(shape) <= MAX_ELEMENTS:
        d.emit("Expand", [x, d.constant(np.array(shape))], shape)


def matmul(d: Draft) -> None:
    x = d.tensor(range(2, 6))
    *lead, depth = d.shapes[x]
    channels = int(d.pick([1, 2, 7, 16, 17, 33, 48]))
    if prod(lead) * channels > MAX_ELEMENTS:
        return
    y = d.emit("MatMul", [x, d.weight((depth, channels), depth**-0.5)], (*lead, channels))
    if d.chance(0.5):
        d.emit("Add", [y, d.weight((channels,))], (*lead, channels))


def gemm(d: Draft) -> None:
    x = d.tensor(range(2, 3))
    rows, depth = d.shapes[x]
    weight = d.weight((9, depth), depth**-0.5)
    d.emit("Gemm", [x, weight, d.weight((9,))], (rows, 9), transB=1, alpha=0.5)


def attention(d: Draft) -> None:
    x = d.tensor(range(2, 6))
    *lead, rows, depth = d.shapes[x]
    if prod(lead) * rows * rows > MAX_ELEMENTS:
        return
    axes = [*range(len(lead)), len(lead) + 1, len(lead)]
    turned = d.emit("Transpose", [x], (*lead, depth, rows), perm=axes)
    scores = d.emit("MatMul", [x, turned], (*lead, rows, rows))
    scaled = d.emit("Mul", [scores, d.constant(np.float32(depth**-0.5))], (*lead, rows, rows))
    d.emit("MatMul", [d.emit("Softmax", [scaled], (*lead, rows, rows), axis=-1), x], (*lead, rows, depth))


def conv(d: Draft) -> None:
    x = d.tensor(range(3, 5))
    n, channels, *space = d.shapes[x]
    kernel = [d.number(1, 3) for _ in space]
    strides, dilations = [d.number(1, 2) for _ in space], [d.number(1, 2) for _ in space]
    pads = [d.number(0, 2) for _ in range(2 * len(space))]
    groups = int(d.pick([1, 1, channels, *(g for g in (2, 3) if channels % g == 0)]))
    out = groups * d.number(1, 3) if groups != channels or d.chance(0.3) else channels
    out = int(d.pick([1, 5, 16, 24])) if groups == 1 else out
    sizes = _windows(space, kernel, strides, dilations, pads)
    if min(sizes) < 1 or n * out * prod(sizes) > MAX_ELEMENTS:
        return
    weight = d.weight((out, channels // groups, *kernel), (channels // groups * prod(kernel)) ** -0.5)
    operands = [x, weight, *([d.weight((out,))] if d.chance(0.5) else [])]
    d.emit("Conv", operands, (n, out, *sizes), strides=strides, dilations=dilations, pads=pads, group=groups)


def _windows(
    space: list[int], kernel: list[int], strides: list[int], dilations: list[int], pads: list[int]
) -> list[int]:
    rank = len(space)
    return [
        (space[i] + pads[i] + pads[rank + i] - dilations[i] * (kernel[i] - 1) - 1) // strides[i] + 1
        for i in range(rank)
    ]


def conv_transpose(d: Draft) -> None:
    x = d.tensor(range(4, 5))
    n, channels, *space = d.shapes[x]
    kernel, strides = [d.number(1, 3) for _ in space], [d.number(1, 3) for _ in space]
    out = int(d.pick([1, 5, 16]))
    sizes = [(extent - 1) * stride + k for extent, stride, k in zip(space, strides, kernel, strict=True)]
    if n * out * prod(sizes) <= MAX_ELEMENTS:
        weight = d.weight((channels, out, *kernel), channels**-0.5)
        d.emit("ConvTranspose", [x, weight], (n, out, *sizes), strides=strides)


def pool(d: Draft) -> None:
    x = d.tensor(range(4, 5))
    n, channels, *space = d.shapes[x]
    kernel, strides, pads = [d.number(1, 3), d.number(2, 3)], [d.number(1, 2) for _ in space], [0, d.number(0, 1)] * 2
    sizes = _windows(space, kernel, strides, [1, 1], pads)
    if min(sizes) >= 1:
        op = str(d.pick(["MaxPool", "AveragePool"]))
        d.emit(op, [x], (n, channels, *sizes), kernel_shape=kernel, strides=strides, pads=pads)


def global_pool(d: Draft) -> None:
    x = d.tensor(range(3, 6))
    n, channels, *space = d.shapes[x]
    d.emit("GlobalAveragePool", [x], (n, channels, *(1 for _ in space)))


def resize(d: Draft) -> None:
    x = d.tensor(range(4, 5))
    n, c, h, w = d.shapes[x]
    if 4 * n * c * h * w <= MAX_ELEMENTS:
        mode = {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
        d.emit("Resize", [x, "", d.constant(np.float32([1, 1, 2, 2]))], (n, c, 2 * h, 2 * w), **mode)


def space_to_depth(d: Draft) -> None:
    x = d.tensor(range(4, 5))
    n, c, h, w = d.shapes[x]
    if h % 2 == 0 and w % 2 == 0:
        d.emit("SpaceToDepth", [x], (n, 4 * c, h // 2, w // 2), blocksize=2)
    elif c % 4 == 0:
        d.emit("DepthToSpace", [x], (n, c // 4, 2 * h, 2 * w), blocksize=2, mode=str(d.pick(["DCR", "CRD"])))


OPERATORS: list[Callable[[Draft], None]] = [
    unary, unary, swish, binary, binary, binary, divide, outer_broadcast, reduce, reduce, softmax, layer_norm,
    instance_norm, batch_norm, reshape, reshape, transpose, transpose, channel_shuffle, concat, split, slice_, pad,
    gather, squeeze, expand, matmul, matmul, gemm, attention, conv, conv, conv, conv_transpose, pool, global_pool,
    resize, space_to_depth,
]  # fmt: skip


def random_graph(seed: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return a model of 5 to 20 operators and inputs for it; unread tensors are outputs, sometimes a read one too."""
    d = Draft(np.random.default_rng(seed))
    d.input(d.shape(d.number(2, 4)))
    wanted = d.number(5, 20)
    while len(d.nodes) < wanted:
        OPERATORS[d.number(0, len(OPERATORS) - 1)](d)
    made = [name for name in d.shapes if name not in d.inputs]
    outputs = [name for name in made if name not in d.used or d.chance(0.1)]
    # Values of a tame size: no engine is right where large ones cancel.
    tame = []
    for name in outputs:
        tame.append(d.emit("Identity", [name], d.shapes[name], outputs=[f"{name}_out"]))
    values = {name: d.rng.standard_normal(d.shapes[name]).astype("float32") for name in d.inputs}
    info = lambda name: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, d.shapes[name])  # noqa: E731
    graph = helper.make_graph(d.nodes, f"seed{seed}", [info(n) for n in d.inputs], [info(n) for n in tame], d.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), values
