"""Lowers 2-d convolution over N, H, W, C activations."""

from __future__ import annotations

from functools import partial

from tvm import relax, te
from tvm.ir import GenericConst

from backends.cpu.kernels.matmul.lower import matmul_of
from backends.cpu.kernels.shared.packing import pack_conv2d, pack_conv2d_pairs
from backends.cpu.kernels.shared.window import Window, read_under
from backends.tensorir.emit import Expr
from partition.access import ANCHOR, CONV2D


def lower_conv2d(builder: relax.BlockBuilder, call: relax.Call, lanes: int) -> relax.Expr | None:
    """Return a channels-last `nn.conv2d` with constant OIHW weights as an anchor, of float32 or of bfloat16 with a
    result in float32; None where it is not one."""
    data, weight = call.args
    attrs = call.attrs
    if attrs.data_layout != "NHWC" or attrs.kernel_layout != "OIHW" or not isinstance(weight, GenericConst):
        return None
    result, *types = (str(part.ty.dtype.dtype) for part in (call, data, weight))
    if result != "float32" or types not in (["float32"] * 2, ["bfloat16"] * 2) or 0 in [int(n) for n in call.ty.shape]:
        return None
    values = weight.value.numpy()
    window = Window.of(attrs, values.shape[2:])
    if window.is_pointwise and int(attrs.groups) == 1:
        return matmul_of(data, values[:, :, 0, 0].T, builder, lanes)
    groups = int(attrs.groups)
    if types[0] == "bfloat16":
        packed, convolve = pack_conv2d_pairs(values, groups, lanes, window.merges(groups)), _convolve_pairs
    else:
        packed, convolve = pack_conv2d(values, groups, lanes), _convolve
    compute = partial(convolve, channels=values.shape[0], window=window)
    return builder.call_te(compute, data, relax.const(packed), primfunc_name_hint=CONV2D)


def _convolve(data: te.Tensor, packed: te.Tensor, channels: int, window: Window) -> te.Tensor:
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

    attrs = {ANCHOR: CONV2D, "window": window.annotation()}
    return te.compute((batch, out_height, out_width, channels), sum_over_window, name=CONV2D, attrs=attrs)


def _convolve_pairs(data: te.Tensor, packed: te.Tensor, channels: int, window: Window) -> te.Tensor:
    batch, height, width, all_channels = (int(n) for n in data.shape)
    groups, lanes = int(packed.shape[0]), int(packed.shape[-1]) // 2
    per_group, depth, merged = channels // groups, all_channels // groups, window.merges(groups)
    out_height, out_width = window.output(height, width)
    (kh, kw), names = window.kernel, ("ry", "rx", "rc")
    ry, rx, rc = (te.reduce_axis((0, n), name) for n, name in zip((kh, kw, depth), names, strict=True))

    def sum_over_window(n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        group, channel = c // per_group, c % per_group
        value = read_under(
            window, (height, width), (y, x), (ry, rx),
            lambda row, column: data[n, row, column, group * depth + rc].astype("float32"),
        )  # fmt: skip
        tap, k = (0, rx * depth + rc) if merged else (rx, rc)
        weight = packed[group, channel // lanes, ry, tap, k // 2, channel % lanes * 2 + k % 2]
        return te.sum(value * weight.astype("float32"), axis=[ry, rx, rc])

    attrs = {ANCHOR: CONV2D, "window": window.annotation()}
    return te.compute((batch, out_height, out_width, channels), sum_over_window, name=CONV2D, attrs=attrs)
