"""Transposed convolution: one matmul gives every tap of every pixel, then the taps are put (or summed) where they
belong."""

from __future__ import annotations

from functools import partial

from tvm import relax, te, tirx
from tvm.ir import GenericConst

from backends.cpu.anchors.matmul import matmul_of
from backends.cpu.anchors.window import Window
from backends.cpu.emit import Expr


def lower_conv2d_transpose(builder: relax.BlockBuilder, call: relax.Call, lanes: int) -> relax.Expr | None:
    """Return a channels-last `nn.conv2d_transpose` of one group, constant float32 IOHW weights; None where it is
    not one."""
    data, weight = call.args
    attrs = call.attrs
    if attrs.data_layout != "NHWC" or attrs.kernel_layout != "IOHW" or not isinstance(weight, GenericConst):
        return None
    if str(call.ty.dtype.dtype) != "float32" or int(attrs.groups) != 1 or 0 in [int(n) for n in call.ty.shape]:
        return None
    values = weight.value.numpy()
    window = Window.of(attrs, values.shape[2:])
    taps = values.transpose(0, 2, 3, 1).reshape(values.shape[0], -1)
    columns = builder.emit(matmul_of(data, taps, builder, lanes))
    _, height, width, channels = (int(n) for n in call.ty.shape)
    scatter = _place if _tiles_exactly(window, height, width) else _sum
    compute = partial(scatter, window=window, height=height, width=width, channels=channels)
    return builder.call_te(compute, columns, primfunc_name_hint="columns_to_image")


def _tiles_exactly(window: Window, height: int, width: int) -> bool:
    """Return whether each output pixel comes from exactly one tap: kernel = stride and nothing cut off."""
    return (
        window.kernel == window.strides and window.dilation == (1, 1) and not any(window.padding)
        and height % window.kernel[0] == 0 and width % window.kernel[1] == 0
    )  # fmt: skip


def _place(columns: te.Tensor, window: Window, height: int, width: int, channels: int) -> te.Tensor:
    kh, kw = window.kernel

    def tap(n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        return columns[n, y // kh, x // kw, ((y % kh) * kw + x % kw) * channels + c]

    return te.compute((columns.shape[0], height, width, channels), tap, name="columns_to_image")


def _sum(columns: te.Tensor, window: Window, height: int, width: int, channels: int) -> te.Tensor:
    kh, kw = window.kernel
    in_height, in_width = int(columns.shape[1]), int(columns.shape[2])
    ry, rx = te.reduce_axis((0, kh), "ry"), te.reduce_axis((0, kw), "rx")
    top, left, _, _ = window.padding

    def taps(n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        at_y, at_x = y + top - ry * window.dilation[0], x + left - rx * window.dilation[1]
        row, column = at_y // window.strides[0], at_x // window.strides[1]
        inside = tirx.all(
            at_y % window.strides[0] == 0,
            at_x % window.strides[1] == 0,
            row >= 0,
            row < in_height,
            column >= 0,
            column < in_width,
        )
        value = columns[n, row, column, (ry * kw + rx) * channels + c]
        return te.sum(te.if_then_else(inside, value, tirx.const(0, columns.dtype)), axis=[ry, rx])

    return te.compute((columns.shape[0], height, width, channels), taps, name="columns_to_image")
