"""Lowers 2-d convolution over N, H, W, C activations."""

from __future__ import annotations

from functools import partial

from tvm import relax, te

from backends.cpu.kernels.conv2d.taps_to_pixels import pays_as_taps, taps_to_pixels
from backends.cpu.kernels.shared.lowering.constant_matmul import matmul_of
from backends.cpu.kernels.shared.lowering.operands import (
    BFLOAT16,
    FLOAT32,
    JOINED,
    are_bytes,
    check_dtypes,
    check_elements,
    check_layouts,
    constant_weights,
    is_constant,
)
from backends.cpu.kernels.shared.lowering.packing import (
    CONV2D_PANELS,
    pack_conv2d_joined,
    packed_constant,
    packed_weights,
)
from backends.cpu.kernels.shared.window import Window, read_under
from backends.tensorir.emit import Expr
from fusion.shapes import static_shape
from partition.access import ANCHOR, CONV2D

OF_THE_RUN = "weights_of_the_run"
"""Of an anchor whose weights are packed by the run."""


def lower_conv2d(builder: relax.BlockBuilder, call: relax.Call, lanes: int) -> relax.Expr:
    """Return a channels-last `nn.conv2d` with OIHW weights as an anchor, of float32, or, where they are constant, of
    bfloat16 with a result in float32.

    Raises:
        Declined: It is another one.
    """
    data, weight = call.args
    if not are_bytes(call):
        check_dtypes(call, FLOAT32, BFLOAT16)
    check_layouts(call, "NHWC", "OIHW")
    check_elements(call)
    channels, _, *kernel = static_shape(weight)
    window, groups = Window.of(call.attrs, (kernel[0], kernel[1])), int(call.attrs.groups)
    if is_constant(weight) and window.is_pointwise and groups == 1:
        return matmul_of(data, constant_weights(call)[:, :, 0, 0].T, builder, lanes)
    joined = JOINED.get(str(weight.ty.dtype.dtype))
    if joined is not None:
        merged = window.merges(groups)
        packed = packed_constant(pack_conv2d_joined, constant_weights(call), groups, lanes, merged, joined)
        dtype = str(call.ty.dtype.dtype)
        compute = partial(_convolve_joined, channels=channels, window=window, joined=joined, dtype=dtype)
    elif is_constant(weight) and groups == 1 and pays_as_taps(static_shape(weight), window, lanes):
        values = constant_weights(call)
        return taps_to_pixels(builder, data, weight=values, window=window, shape=static_shape(call), lanes=lanes)
    else:
        packed = packed_weights(builder, weight, CONV2D_PANELS, groups, lanes)
        compute = partial(_convolve, channels=channels, window=window, is_known=is_constant(weight))
    return builder.call_te(compute, data, packed, primfunc_name_hint=CONV2D)


def _convolve(data: te.Tensor, packed: te.Tensor, channels: int, window: Window, is_known: bool) -> te.Tensor:
    batch, height, width, _ = (int(n) for n in data.shape)
    groups, _, kh, kw, depth, lanes = (int(n) for n in packed.shape)
    per_group = channels // groups
    out_height, out_width = window.output(height, width)
    ry, rx, rc = (te.reduce_axis((0, n), name) for n, name in ((kh, "ry"), (kw, "rx"), (depth, "rc")))

    def sum_over_window(n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        group, channel = c // per_group, c % per_group
        value = read_under(
            window, (height, width), (y, x), (ry, rx), lambda row, column: data[n, row, column, group * depth + rc]
        )
        return te.sum(value * packed[group, channel // lanes, ry, rx, rc, channel % lanes], axis=[ry, rx, rc])

    attrs = {ANCHOR: CONV2D, "window": window.annotation(), **({} if is_known else {OF_THE_RUN: 1})}
    return te.compute((batch, out_height, out_width, channels), sum_over_window, name=CONV2D, attrs=attrs)


def _convolve_joined(
    data: te.Tensor, packed: te.Tensor, channels: int, window: Window, joined: int, dtype: str
) -> te.Tensor:  # fmt: skip
    batch, height, width, all_channels = (int(n) for n in data.shape)
    groups, lanes = int(packed.shape[0]), int(packed.shape[-1]) // joined
    per_group, depth, merged = channels // groups, all_channels // groups, window.merges(groups)
    out_height, out_width = window.output(height, width)
    (kh, kw), names = window.kernel, ("ry", "rx", "rc")
    ry, rx, rc = (te.reduce_axis((0, n), name) for n, name in zip((kh, kw, depth), names, strict=True))

    def sum_over_window(n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        group, channel = c // per_group, c % per_group
        value = read_under(
            window, (height, width), (y, x), (ry, rx),
            lambda row, column: data[n, row, column, group * depth + rc].astype(dtype), dtype=dtype,
        )  # fmt: skip
        tap, k = (0, rx * depth + rc) if merged else (rx, rc)
        weight = packed[group, channel // lanes, ry, tap, k // joined, channel % lanes * joined + k % joined]
        return te.sum(value * weight.astype(dtype), axis=[ry, rx, rc])

    attrs = {ANCHOR: CONV2D, "window": window.annotation()}
    return te.compute((batch, out_height, out_width, channels), sum_over_window, name=CONV2D, attrs=attrs)
