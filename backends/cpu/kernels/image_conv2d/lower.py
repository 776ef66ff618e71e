"""Lowers 2-d convolution of an image of few channels that lies plane by plane."""

from __future__ import annotations

from functools import partial

import numpy as np
from tvm import relax, te

from backends.cpu.kernels.shared.lowering.operands import FLOAT32, check_dtypes, check_elements, constant_weights
from backends.cpu.kernels.shared.lowering.packing import Array, pack_conv2d, packed_constant
from backends.cpu.kernels.shared.window import Window, read_under
from backends.tensorir.emit import Expr
from fusion.bindings import data_of
from partition.access import ANCHOR, IMAGE_CONV2D


def lower_image_conv2d(builder: relax.BlockBuilder, call: relax.Call, lanes: int) -> relax.Expr:
    """Return an `nn.conv2d` that `has_few_channels` as an anchor that reads the image before it was transposed.

    Raises:
        Declined: It has other operands.
    """
    values = constant_weights(call)
    check_dtypes(call, FLOAT32)
    check_elements(call)
    compute = partial(_convolve, channels=values.shape[0], window=Window.of(call.attrs, values.shape[2:]))
    packed = packed_constant(_by_plane, values, lanes)
    planes = data_of(builder.lookup_binding(data_of(call)))
    return builder.call_te(compute, planes, packed, primfunc_name_hint=IMAGE_CONV2D)


def _by_plane(weight: Array, lanes: int) -> Array:
    """Return OIHW weights as [panel, I, KH, KW, lane]."""
    return np.transpose(pack_conv2d(weight, 1, lanes)[0], (0, 3, 1, 2, 4))


def has_few_channels(builder: relax.BlockBuilder, call: relax.Call, lanes: int) -> bool:
    """Return whether a channels-last convolution of one group reads an image that was transposed for it and has fewer
    channels than a vector lanes."""
    attrs, data = call.attrs, data_of(call)
    if (attrs.data_layout, attrs.kernel_layout, int(attrs.groups)) != ("NHWC", "OIHW", 1):
        return False
    made = builder.lookup_binding(data) if isinstance(data, relax.Var) else None
    if not isinstance(made, relax.Call) or str(getattr(made.op, "name", "")) != "relax.permute_dims":
        return False
    return [int(axis) for axis in made.attrs.axes or ()] == [0, 2, 3, 1] and int(data.ty.shape[3]) < lanes


def _convolve(data: te.Tensor, packed: te.Tensor, channels: int, window: Window) -> te.Tensor:
    batch, planes, height, width = (int(n) for n in data.shape)
    extents = zip((planes, *window.kernel), ("rc", "ry", "rx"), strict=True)
    rc, ry, rx = (te.reduce_axis((0, extent), name) for extent, name in extents)
    lanes = int(packed.shape[-1])

    def sum_over_window(n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        value = read_under(window, (height, width), (y, x), (ry, rx), lambda row, column: data[n, rc, row, column])
        return te.sum(value * packed[c // lanes, rc, ry, rx, c % lanes], axis=[rc, ry, rx])

    attrs = {ANCHOR: IMAGE_CONV2D, "window": window.annotation()}
    shape = (batch, *window.output(height, width), channels)
    return te.compute(shape, sum_over_window, name=IMAGE_CONV2D, attrs=attrs)
