"""Pooling over windows."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping

from tvm import relax
from tvm.relax import Expr

from fusion.declined import Declined
from fusion.frontends.onnx.node import Node
from fusion.frontends.onnx.ops.half import Number, half_in_float32
from fusion.frontends.onnx.pool_windows import pool_window
from fusion.frontends.onnx.registry import converts
from fusion.frontends.onnx.types import Shape
from fusion.frontends.onnx.windows import OnnxWindow

_MAX: dict[int, Callable[..., Expr]] = {1: relax.op.nn.max_pool1d, 2: relax.op.nn.max_pool2d, 3: relax.op.nn.max_pool3d}
_AVERAGE: dict[int, Callable[..., Expr]] = {
    1: relax.op.nn.avg_pool1d,
    2: relax.op.nn.avg_pool2d,
    3: relax.op.nn.avg_pool3d,
}


@converts("MaxPool")
def max_pool(node: Node) -> Expr:
    if node.wants(1):
        raise Declined("the positions of the maxima are asked for")
    return _pool(node, node.x(0), _MAX)


@converts("AveragePool")
@half_in_float32
def average_pool(node: Node, x: Expr, number: Number) -> Expr:
    include = bool(node.attr("count_include_pad", 0))
    # With ceil_mode, ONNX never counts what lies beyond the pads, TVM does.
    if include and node.attr("ceil_mode", 0):
        raise Declined("left to TVM's converter")
    return _pool(node, x, _AVERAGE, count_include_pad=include)


@converts("LpPool")
@half_in_float32
def lp_pool(node: Node, x: Expr, number: Number) -> Expr:
    """(sum of |x|^p)^(1/p) over each window, as its mean times its elements: padding adds zeros"""
    sizes, power = node.shape(0)[2:], node.attr("p", 2)
    if len(sizes) not in _AVERAGE:
        raise Declined(f"pooling over {len(sizes)} spatial axes")
    window, places = pool_window(node.proto, sizes)
    window = _padded_for(window, sizes, places, counted=False)
    means = _AVERAGE[len(sizes)](
        _power(x, power, number), window.kernel, window.strides, window.padding, window.dilations, False,
        count_include_pad=True,
    )  # fmt: skip
    return _root(relax.op.multiply(means, number(math.prod(window.kernel))), power, number)


@converts("GlobalLpPool")
@half_in_float32
def global_lp_pool(node: Node, x: Expr, number: Number) -> Expr:
    """(sum of |x|^p)^(1/p) over each image"""
    power = node.attr("p", 2)
    sums = relax.op.sum(_power(x, power, number), list(range(2, len(node.shape(0)))), keepdims=True)
    return _root(sums, power, number)


def _power(x: Expr, power: int, number: Number) -> Expr:
    return relax.op.multiply(x, x) if power == 2 else relax.op.power(relax.op.abs(x), number(power))


def _root(sums: Expr, power: int, number: Number) -> Expr:
    return relax.op.sqrt(sums) if power == 2 else relax.op.power(sums, number(1 / power))


def _pool(node: Node, x: Expr, functions: Mapping[int, Callable[..., Expr]], **options: bool) -> Expr:
    """[N, C, ...] -> [N, C, ...], by the function for the number of spatial axes; its default layout is ONNX's."""
    sizes = node.shape(0)[2:]
    if len(sizes) not in functions:
        raise Declined(f"pooling over {len(sizes)} spatial axes")
    window, places = pool_window(node.proto, sizes)
    ceil = bool(node.attr("ceil_mode", 0))
    if _places_in_tvm(window, sizes, ceil) != places:
        window, ceil = _padded_for(window, sizes, places, options.get("count_include_pad", False)), False
    return functions[len(sizes)](
        x, window.kernel, window.strides, window.padding, window.dilations, ceil, **options
    )


def _places_in_tvm(window: OnnxWindow, sizes: Shape, ceil: bool) -> Shape:
    axes = zip(sizes, window.before, window.after, window.extents, window.strides, strict=True)
    return tuple(
        (size + front + back - extent + (step - 1 if ceil else 0)) // step + 1
        for size, front, back, extent, step in axes
    )


def _padded_for(window: OnnxWindow, sizes: Shape, places: Shape, counted: bool) -> OnnxWindow:
    """Return `window` with as little padding behind the input as lets it take `places`; declines where padding counts
    and this is not what it was."""
    axes = zip(places, window.strides, window.extents, sizes, window.before, strict=True)
    needed = tuple((count - 1) * step + extent - size - front for count, step, extent, size, front in axes)
    if counted and needed != window.after:
        raise Declined("padding counts that only ceil_mode adds")
    # What is left over behind the last place is less than a stride, or would be one more.
    left = [max(-back - step + 1, 0) for back, step in zip(needed, window.strides, strict=True)]
    if any(left):
        raise Declined("the input goes on behind the last window")
    return dataclasses.replace(window, after=tuple(max(back, 0) for back in needed))
