"""Convolutions as high-level Relax operators; passes change the layout later.

Relax's default layouts are those of ONNX, channels first.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax
from tvm.relax import Expr

from fusion.declined import Declined
from fusion.frontends.onnx.node import Node
from fusion.frontends.onnx.ops.half import cast, wide_of
from fusion.frontends.onnx.registry import converts
from fusion.frontends.onnx.windows import transposed_window, window_of

_CONV: dict[int, Callable[..., Expr]] = {1: relax.op.nn.conv1d, 2: relax.op.nn.conv2d, 3: relax.op.nn.conv3d}
_DECONV: dict[int, Callable[..., Expr]] = {
    1: relax.op.nn.conv1d_transpose,
    2: relax.op.nn.conv2d_transpose,
    3: relax.op.nn.conv3d_transpose,
}


@converts("Conv")
def conv(node: Node) -> Expr:
    """[N, C, ...] * [O, C / group, ...] -> [N, O, ...]"""
    rank = _rank(node)
    window = window_of(node, node.shape(1)[2:])
    result = _CONV[rank](
        node.x(0),
        node.x(1),
        strides=window.strides,
        padding=window.padding,
        dilation=window.dilations,
        groups=int(node.attr("group", 1)),
        out_dtype=_accumulator(node),
    )
    return _rounded_once(node, result, rank)


@converts("ConvTranspose")
def conv_transpose(node: Node) -> Expr:
    """[N, C, ...] * [C, O / group, ...] -> [N, O, ...]"""
    rank = _rank(node)
    window, output_padding = transposed_window(node, node.shape(1)[2:])
    if any(pad < 0 for pad in window.padding):
        raise Declined("negative pads")
    result = _DECONV[rank](
        node.x(0),
        node.x(1),
        strides=window.strides,
        padding=window.padding,
        output_padding=output_padding,
        dilation=window.dilations,
        groups=int(node.attr("group", 1)),
        out_dtype=_accumulator(node),
    )
    return _rounded_once(node, result, rank)


def _rank(node: Node) -> int:
    rank = len(node.shape(0)) - 2
    if rank not in _CONV:
        raise Declined(f"convolution over {rank} spatial axes")
    return rank


def _accumulator(node: Node) -> str | None:
    """Half-precision sums lose what ONNX Runtime keeps."""
    wide = wide_of(node.dtype(0))
    return None if wide == node.dtype(0) else wide


def _rounded_once(node: Node, sums: Expr, rank: int) -> Expr:
    """Return the sums with their bias, rounded behind it."""
    dtype, wide = node.dtype(0), wide_of(node.dtype(0))
    if not node.has(2):
        return cast(sums, wide, dtype)
    column = (1, node.shape(2)[0], *[1] * rank)
    return cast(relax.op.add(sums, cast(node.reshaped(2, column), dtype, wide)), wide, dtype)
