"""Lowers depthwise convolution over N, H, W, C activations, and convolution in narrow groups."""

from __future__ import annotations

from functools import partial

import numpy as np
from tvm import relax, te

from backends.cpu.kernels.shared.lowering.operands import (
    FLOAT32,
    check_dtypes,
    check_elements,
    has_narrow_groups,
)
from backends.cpu.kernels.shared.lowering.packing import EACH_TAP, Array, Packing, packed_weights
from backends.cpu.kernels.shared.window import Window, read_under
from backends.tensorir.emit import Expr
from fusion.bindings import operand
from fusion.shapes import static_shape
from partition.access import ANCHOR, DEPTHWISE

GROUPED = "grouped_conv2d"


def lower_depthwise(builder: relax.BlockBuilder, call: relax.Call, lanes: int) -> relax.Expr:
    """Return a channels-last `nn.conv2d` that `is_depthwise` as an anchor.

    Raises:
        Declined: It has other operands.
    """
    data, weight = call.args
    check_dtypes(call, FLOAT32)
    check_elements(call)
    groups, (channels, members, *kernel) = int(call.attrs.groups), static_shape(weight)
    window = Window.of(call.attrs, (kernel[0], kernel[1]))
    if groups == channels and members == 1:
        packed = packed_weights(builder, weight, EACH_TAP)
        return builder.call_te(partial(_convolve, window=window), data, packed, primfunc_name_hint=DEPTHWISE)
    packed = packed_weights(builder, weight, _OF_GROUPS)
    compute = partial(_convolve_groups, window=window, groups=groups)
    return builder.call_te(compute, data, packed, primfunc_name_hint=GROUPED)


def _by_group(weight: Array) -> Array:
    """Return OIHW weights as [KH, KW, I, O]."""
    return np.transpose(weight, (2, 3, 1, 0))


def _write_groups(weight: te.Tensor) -> te.Tensor:
    """Write `_by_group`."""
    channels, members, height, width = weight.shape
    return te.compute((height, width, members, channels), lambda y, x, i, o: weight[o, i, y, x], name="packed")


_OF_GROUPS = Packing(_by_group, _write_groups)


def is_depthwise(builder: relax.BlockBuilder, call: relax.Call, lanes: int) -> bool:
    """Return whether a convolution is channels-last, and depthwise or of groups of which a vector has several."""
    attrs, weight = call.attrs, operand(call, "weight").ty.shape
    is_last = (attrs.data_layout, attrs.kernel_layout) == ("NHWC", "OIHW")
    return is_last and has_narrow_groups(weight, int(attrs.groups), lanes)


def _convolve(data: te.Tensor, weight: te.Tensor, window: Window) -> te.Tensor:
    batch, height, width, channels = (int(n) for n in data.shape)
    out_height, out_width = window.output(height, width)
    ry, rx = (te.reduce_axis((0, n), name) for n, name in zip(window.kernel, ("ry", "rx"), strict=True))

    def sum_over_window(n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        value = read_under(window, (height, width), (y, x), (ry, rx), lambda row, column: data[n, row, column, c])
        return te.sum(value * weight[ry, rx, c], axis=[ry, rx])

    attrs = {ANCHOR: DEPTHWISE, "window": window.annotation()}
    return te.compute((batch, out_height, out_width, channels), sum_over_window, name=DEPTHWISE, attrs=attrs)


def _convolve_groups(data: te.Tensor, weight: te.Tensor, window: Window, groups: int) -> te.Tensor:
    batch, height, width, _ = (int(n) for n in data.shape)
    members, channels = (int(n) for n in weight.shape[2:])
    made = channels // groups
    out_height, out_width = window.output(height, width)
    extents = zip((*window.kernel, members), ("ry", "rx", "rc"), strict=True)
    ry, rx, rc = (te.reduce_axis((0, extent), name) for extent, name in extents)

    def sum_over_window(n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        first = c // made * members
        value = read_under(
            window, (height, width), (y, x), (ry, rx), lambda row, column: data[n, row, column, first + rc]
        )
        return te.sum(value * weight[ry, rx, rc, c], axis=[ry, rx, rc])

    attrs = {ANCHOR: GROUPED, "window": window.annotation(), "groups": groups}
    return te.compute((batch, out_height, out_width, channels), sum_over_window, name=GROUPED, attrs=attrs)
