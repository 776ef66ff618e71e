"""Pooling over windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tvm import relax
from tvm.relax import Expr

from fusion.frontends.onnx.node import Decline, Node
from fusion.frontends.onnx.registry import converts
from fusion.frontends.onnx.windows import window_of

_MAX: dict[int, Callable[..., Expr]] = {1: relax.op.nn.max_pool1d, 2: relax.op.nn.max_pool2d, 3: relax.op.nn.max_pool3d}
_AVERAGE: dict[int, Callable[..., Expr]] = {
    1: relax.op.nn.avg_pool1d,
    2: relax.op.nn.avg_pool2d,
    3: relax.op.nn.avg_pool3d,
}


@converts("MaxPool")
def max_pool(node: Node) -> Expr:
    if node.wants(1):
        raise Decline("the positions of the maxima are asked for")
    return _pool(node, _MAX)


@converts("AveragePool")
def average_pool(node: Node) -> Expr:
    include = bool(node.attr("count_include_pad", 0))
    # With ceil_mode, ONNX never counts what lies beyond the pads, TVM does.
    if include and node.attr("ceil_mode", 0):
        raise Decline("left to TVM's converter")
    return _pool(node, _AVERAGE, count_include_pad=include)


def _pool(node: Node, functions: Mapping[int, Callable[..., Expr]], **options: bool) -> Expr:
    """[N, C, ...] -> [N, C, ...], by the function for the number of spatial axes; its default layout is ONNX's."""
    kernel = tuple(int(size) for size in node.attr("kernel_shape"))
    if len(kernel) not in functions:
        raise Decline(f"pooling over {len(kernel)} spatial axes")
    window = window_of(node, kernel)
    return functions[len(kernel)](
        node.x(0),
        window.kernel,
        window.strides,
        window.padding,
        window.dilations,
        bool(node.attr("ceil_mode", 0)),
        **options,
    )
