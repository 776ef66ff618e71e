"""Operators to learn from: drawn by seed from the ranges of sizes of real networks, none taken from one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod, sqrt
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

Draw = np.random.Generator
Expr = Any
Build = Callable[[relax.BlockBuilder, "list[relax.Var]"], Expr]

_MOST_FLOPS = 4e8
"""Of a workload: 10 ms of one core, so that hundreds are measured in minutes."""
_MOST_BYTES = 16 << 20
"""Of its largest tensor."""
_SIDES = (7, 8, 10, 13, 14, 16, 19, 20, 24, 26, 28, 32, 38, 40, 48, 52, 56, 64, 76, 80, 96, 112, 128, 160)
"""Heights and widths of images: halves of 224, 256, 300, 320, 416, 608 and 640, and what is between."""
_TO_PLANES, _TO_CHANNELS_LAST = [0, 3, 1, 2], [0, 2, 3, 1]
"""Orders of axes."""


@dataclass(frozen=True)
class Workload:
    """An operator with its sizes.

    Attributes:
        name: The kind and the sizes, which tell it from others.
        shapes: Of its inputs, float32.
        flops: Of its products, or of its elements where it has none.
        build: Adds the operator to a builder, given its inputs.
    """

    name: str
    shapes: tuple[tuple[int, ...], ...]
    flops: float
    build: Build

    def module(self) -> tvm.IRModule:
        """Return it as a model, whose weights are random."""
        builder = relax.BlockBuilder()
        inputs = [relax.Var(f"x{place}", relax.TensorType(shape, "float32")) for place, shape in enumerate(self.shapes)]
        with builder.function("main", inputs):
            with builder.dataflow():
                result = builder.emit_output(self.build(builder, inputs))
            builder.emit_func_output(result)
        return builder.get()


def draw_workloads(seed: int, count: int) -> list[Workload]:
    """Return `count` different workloads; those of a larger count begin with those of a smaller one."""
    draw, found = np.random.default_rng(seed), dict[str, Workload]()
    for workload in _endless(draw):
        if len(found) == count:
            break
        largest = max(map(prod, workload.shapes)) * 4
        if workload.flops <= _MOST_FLOPS and largest <= _MOST_BYTES:
            found.setdefault(workload.name, workload)
    return list(found.values())


def _endless(draw: Draw) -> Iterator[Workload]:
    kinds, shares = list(_KINDS), np.array(list(_KINDS.values()), float)
    while True:
        yield kinds[int(draw.choice(len(kinds), p=shares / shares.sum()))](draw)


def random_weight(*shape: int) -> Expr:
    """Return constant weights that keep sums near 1."""
    values = np.random.default_rng(shape).standard_normal(shape) / sqrt(max(prod(shape[1:]), 1))
    return relax.const(values.astype("float32"))


def _size(draw: Draw, least: int, most: int, step: int = 1) -> int:
    """Return a multiple of `step`, small ones as often as large ones."""
    value = float(np.exp(draw.uniform(np.log(least), np.log(most))))
    return max(step, round(value / step) * step)


def _channels(draw: Draw, most: int) -> int:
    """Return a number of channels: most are multiples of 16, some of 8, few are any."""
    return _size(draw, 8, most, int(draw.choice([1, 8, 16, 32], p=[0.05, 0.2, 0.4, 0.35])))


def _side(draw: Draw) -> int:
    return int(draw.choice(_SIDES))


def _convolution(kernel: int) -> Callable[[Draw], Workload]:
    def drawn(draw: Draw) -> Workload:
        side, stride = _side(draw), int(draw.choice([1, 2], p=[0.8, 0.2]))
        channels, made = _channels(draw, 1024 if kernel == 1 else 512), _channels(draw, 1024 if kernel == 1 else 512)
        joins = bool(draw.random() < 0.25) and stride == 1 and channels == made
        rest, last = bool(draw.random() < 0.7), bool(draw.random() < 0.75)

        def build(builder: relax.BlockBuilder, inputs: list[relax.Var]) -> Expr:
            x = builder.emit(op.permute_dims(inputs[0], _TO_PLANES)) if last else inputs[0]
            out = op.nn.conv2d(x, random_weight(made, channels, kernel, kernel), strides=stride, padding=kernel // 2)
            out = builder.emit(op.add(builder.emit(out), random_weight(1, made, 1, 1)))
            out = builder.emit(op.add(out, x)) if joins else out
            out = builder.emit(op.nn.relu(out)) if rest else out
            return op.permute_dims(out, _TO_CHANNELS_LAST) if last else out

        size = -(-side // stride)
        name = f"conv {kernel}x{kernel}/{stride} {channels}->{made} of {side}x{side}{' joined' * joins}{' relu' * rest}"
        flops = 2.0 * size * size * channels * made * kernel * kernel
        shape = (1, side, side, channels) if last else (1, channels, side, side)
        return Workload(f"{name}{'' if last else ' by planes'}", (shape,), flops, build)

    return drawn


def _first_convolution(draw: Draw) -> Workload:
    side, kernel = int(draw.choice([96, 112, 128, 160, 192, 224])), int(draw.choice([3, 5, 7]))
    made = _channels(draw, 96)

    def build(builder: relax.BlockBuilder, inputs: list[relax.Var]) -> Expr:
        pad = kernel // 2
        out = builder.emit(op.nn.conv2d(inputs[0], random_weight(made, 3, kernel, kernel), strides=2, padding=pad))
        return op.nn.relu(builder.emit(op.add(out, random_weight(1, made, 1, 1))))

    flops = 2.0 * (-(-side // 2)) ** 2 * 3 * made * kernel * kernel
    return Workload(f"first conv {kernel}x{kernel} ->{made} of {side}x{side}", ((1, 3, side, side),), flops, build)


def _depthwise(draw: Draw) -> Workload:
    side, channels, kernel = _side(draw), _channels(draw, 1024), int(draw.choice([3, 5, 7], p=[0.6, 0.3, 0.1]))
    stride = int(draw.choice([1, 2], p=[0.75, 0.25]))

    def build(builder: relax.BlockBuilder, inputs: list[relax.Var]) -> Expr:
        before = builder.emit(op.permute_dims(inputs[0], _TO_PLANES))
        weights = random_weight(channels, 1, kernel, kernel)
        out = op.nn.conv2d(before, weights, strides=stride, padding=kernel // 2, groups=channels)
        out = builder.emit(op.add(builder.emit(out), random_weight(1, channels, 1, 1)))
        return op.permute_dims(builder.emit(op.nn.relu(out)), _TO_CHANNELS_LAST)

    flops = 2.0 * (-(-side // stride)) ** 2 * channels * kernel * kernel
    name = f"depthwise {kernel}x{kernel}/{stride} {channels} of {side}x{side}"
    return Workload(name, ((1, side, side, channels),), flops, build)


def _matmul(draw: Draw) -> Workload:
    rows = int(draw.choice([1, 8, 16, 49, 50, 64, 77, 100, 128, 196, 197, 256, 384, 512, _size(draw, 2, 1024)]))
    depth, columns = _size(draw, 32, 4096, 32), _size(draw, 32, 4096, 32)
    behind = str(draw.choice(["", "gelu", "relu", "joined"], p=[0.4, 0.25, 0.2, 0.15]))

    def build(builder: relax.BlockBuilder, inputs: list[relax.Var]) -> Expr:
        out = builder.emit(op.matmul(inputs[0], random_weight(depth, columns)))
        out = builder.emit(op.add(out, random_weight(columns)))
        if behind == "joined":
            return op.add(out, inputs[1])
        return {"": lambda value: value, "gelu": op.nn.gelu, "relu": op.nn.relu}[behind](out)

    shapes = ((rows, depth), *([(rows, columns)] if behind == "joined" else []))
    return Workload(f"matmul {rows}x{depth}x{columns} {behind}".strip(), shapes, 2.0 * rows * depth * columns, build)


def _batch_matmul(draw: Draw) -> Workload:
    batch, rows = _size(draw, 1, 64), _size(draw, 4, 512)
    depth, columns = _size(draw, 8, 512, 8), _size(draw, 8, 512, 8)
    turned = bool(draw.random() < 0.4)

    def build(builder: relax.BlockBuilder, inputs: list[relax.Var]) -> Expr:
        right = builder.emit(op.permute_dims(inputs[1], [0, 2, 1])) if turned else inputs[1]
        return op.matmul(inputs[0], right)

    shapes = ((batch, rows, depth), (batch, columns, depth) if turned else (batch, depth, columns))
    name = f"batch matmul {batch}x{rows}x{depth}x{columns}{' turned' * turned}"
    return Workload(name, shapes, 2.0 * batch * rows * depth * columns, build)


def _attention(draw: Draw) -> Workload:
    heads, channels = _size(draw, 1, 24), int(draw.choice([16, 24, 32, 48, 64, 80, 96, 128]))
    rows = _size(draw, 8, 1024)
    keys = rows if draw.random() < 0.8 else _size(draw, 8, 1024)

    def build(builder: relax.BlockBuilder, inputs: list[relax.Var]) -> Expr:
        turned = builder.emit(op.permute_dims(inputs[1], [0, 2, 1]))
        scores = builder.emit(op.matmul(inputs[0], turned))
        scores = builder.emit(op.multiply(scores, relax.const(1 / sqrt(channels), "float32")))
        return op.matmul(builder.emit(op.nn.softmax(scores)), inputs[2])

    shapes = ((heads, rows, channels), (heads, keys, channels), (heads, keys, channels))
    return Workload(f"attention {heads}x{rows}x{keys}x{channels}", shapes, 4.0 * heads * rows * keys * channels, build)


def _transposed(draw: Draw) -> Workload:
    side, channels, made = int(draw.choice(_SIDES[:16])), _channels(draw, 256), _channels(draw, 256)
    kernel = int(draw.choice([2, 3, 4]))

    def build(builder: relax.BlockBuilder, inputs: list[relax.Var]) -> Expr:
        pad = (kernel - 2) // 2
        out = op.nn.conv2d_transpose(inputs[0], random_weight(channels, made, kernel, kernel), strides=2, padding=pad)
        return op.nn.relu(builder.emit(op.add(builder.emit(out), random_weight(1, made, 1, 1))))

    flops = 2.0 * side * side * channels * made * kernel * kernel
    name = f"transposed conv {kernel}x{kernel} {channels}->{made} of {side}x{side}"
    return Workload(name, ((1, channels, side, side),), flops, build)


def _rows(draw: Draw) -> Workload:
    rows, length = _size(draw, 1, 4096), _size(draw, 16, 4096, int(draw.choice([1, 16, 64])))
    kind = str(draw.choice(["softmax", "layer norm", "gelu", "sum", "multiplied"]))

    def build(builder: relax.BlockBuilder, inputs: list[relax.Var]) -> Expr:
        x = inputs[0]
        if kind == "softmax":
            return op.nn.softmax(x)
        if kind == "layer norm":
            return op.nn.layer_norm(x, random_weight(length), random_weight(length), axes=[-1])
        if kind == "gelu":
            return op.nn.gelu(builder.emit(op.add(x, random_weight(length))))
        if kind == "sum":
            return op.sum(builder.emit(op.multiply(x, x)), axis=0)
        return op.multiply(x, builder.emit(op.sigmoid(builder.emit(op.add(x, random_weight(length))))))

    return Workload(f"{kind} of {rows}x{length}", ((rows, length),), 8.0 * rows * length, build)


def _pool(draw: Draw) -> Workload:
    side, channels, kernel = _side(draw), _channels(draw, 1024), int(draw.choice([2, 3]))
    largest = bool(draw.random() < 0.6)

    def build(builder: relax.BlockBuilder, inputs: list[relax.Var]) -> Expr:
        pool = op.nn.max_pool2d if largest else op.nn.avg_pool2d
        before = builder.emit(op.permute_dims(inputs[0], _TO_PLANES))
        out = builder.emit(pool(before, pool_size=kernel, strides=2, padding=kernel // 3))
        return op.permute_dims(out, _TO_CHANNELS_LAST)

    name = f"{'max' if largest else 'average'} pool {kernel}x{kernel} {channels} of {side}x{side}"
    return Workload(name, ((1, side, side, channels),), float(side * side * channels * kernel), build)


_KINDS: Mapping[Callable[[Draw], Workload], float] = {
    _convolution(1): 5, _convolution(3): 4, _convolution(5): 0.5, _first_convolution: 1, _transposed: 1, _depthwise: 3,
    _matmul: 5, _batch_matmul: 2, _attention: 2, _rows: 2, _pool: 1,
}  # fmt: skip
"""What is drawn, and how often of others: kernels with large spaces more."""
