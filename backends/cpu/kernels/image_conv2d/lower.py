"""Lowers 2-d convolution of an image of few channels that lies plane by plane."""

from __future__ import annotations

from functools import partial

import numpy as np
from tvm import relax, te
from tvm.ir import GenericConst

from backends.cpu.kernels.shared.packing import pack_conv2d
from backends.cpu.kernels.shared.window import Window, read_under
from backends.tensorir.emit import Expr
from partition.access import ANCHOR, IMAGE_CONV2D


def lower_image_conv2d(builder: relax.BlockBuilder, call: relax.Call, lanes: int) -> relax.Expr | None:
    """Return a channels-last `nn.conv2d` of one group, constant float32 OIHW weights, whose image was transposed for it
    and has fewer channels than a vector lanes, as an anchor that reads what was transposed; None where it is none."""
    data, weight = call.args
    attrs = call.attrs
    planes = _transposed(builder, data)
    if (attrs.data_layout, attrs.kernel_layout, int(attrs.groups)) != ("NHWC", "OIHW", 1):
        return None
    if planes is None or not isinstance(weight, GenericConst):
        return None
    if any(str(part.ty.dtype.dtype) != "float32" for part in (call, data)):
        return None
    if int(data.ty.shape[3]) >= lanes or 0 in [int(n) for n in call.ty.shape]:
        return None
    values = weight.value.numpy()
    packed = pack_conv2d(values, 1, lanes)[0].transpose(0, 3, 1, 2, 4)  # [panel, I, KH, KW, lane]
    compute = partial(_convolve, channels=values.shape[0], window=Window.of(attrs, values.shape[2:]))
    constant = relax.const(np.ascontiguousarray(packed))
    return builder.call_te(compute, planes, constant, primfunc_name_hint=IMAGE_CONV2D)


def _transposed(builder: relax.BlockBuilder, data: relax.Expr) -> relax.Expr | None:
    """Return what `data` is the channels-last transpose of."""
    made = builder.lookup_binding(data) if isinstance(data, relax.Var) else None
    if not isinstance(made, relax.Call) or str(getattr(made.op, "name", "")) != "relax.permute_dims":
        return None
    return made.args[0] if [int(axis) for axis in made.attrs.axes or ()] == [0, 2, 3, 1] else None


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
