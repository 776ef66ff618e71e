"""Lowers transposed convolution over N, H, W, C activations."""

from __future__ import annotations

from functools import partial
from itertools import product

import numpy as np
import numpy.typing as npt
from tvm import relax, te, tirx

from backends.cpu.kernels.conv2d_transpose.columns_to_image import columns_to_image
from backends.cpu.kernels.conv2d_transpose.phases import Phase, pick, tap_step
from backends.cpu.kernels.shared.lowering.operands import (
    FLOAT32,
    check_dtypes,
    check_elements,
    check_layouts,
    constant_weights,
)
from backends.cpu.kernels.shared.lowering.packing import pack_conv2d
from backends.cpu.kernels.shared.window import Window, read_into
from backends.tensorir.emit import Expr
from fusion.bindings import data_of
from partition.access import ANCHOR

CONV2D_TRANSPOSE = "conv2d_transpose"


def lower_conv2d_transpose(builder: relax.BlockBuilder, call: relax.Call, lanes: int) -> relax.Expr:
    """Return a channels-last `nn.conv2d_transpose` with constant float32 IOHW weights as an anchor, or, where each
    channel has a kernel of its own, as stages over vectors of channels.

    Raises:
        Declined: It is another one.
    """
    data, values = data_of(call), constant_weights(call)
    check_dtypes(call, FLOAT32)
    check_layouts(call, "NHWC", "IOHW")
    check_elements(call)
    window, groups = Window.of(call.attrs, values.shape[2:]), int(call.attrs.groups)
    shape = tuple(int(n) for n in call.ty.shape)
    if groups > 1 and groups == values.shape[0] == shape[3]:
        taps = np.ascontiguousarray(values[:, 0].transpose(1, 2, 0))
        compute = partial(_each_channel, window=window, shape=shape)
        return builder.call_te(compute, data, relax.const(taps), primfunc_name_hint="depthwise_conv2d_transpose")
    if groups == 1 and _fits_in_columns(values, lanes):
        return columns_to_image(builder, data, weight=values, window=window, shape=shape, lanes=lanes)
    packed = _pack(values, groups, window, lanes)
    compute = partial(_convolve, window=window, groups=groups, shape=shape)
    return builder.call_te(compute, data, relax.const(packed), primfunc_name_hint=CONV2D_TRANSPOSE)


def _fits_in_columns(weight: npt.NDArray[np.float32], lanes: int) -> bool:
    """Return whether the taps of all channels fill vectors so much better than those of each tap alone that a pass to
    put them in place pays: 24 to 1 channels, 2x2 taps of stride 2 over 240x240 took 230 us so, 810 by phases."""
    _, channels, height, width = weight.shape
    taps = height * width
    return bool(taps * -(-channels // lanes) >= 2 * -(-taps * channels // lanes))


def _pack(weight: npt.NDArray[np.float32], groups: int, window: Window, lanes: int) -> npt.NDArray[np.float32]:
    """Return IOHW weights as [phase of y, phase of x, groups, ceil(O / lanes), taps, taps, I, lanes], zeros where a
    phase has fewer taps than another."""
    depth, channels, *_ = weight.shape
    by_group = weight.reshape(groups, depth // groups, channels, *window.kernel).transpose(0, 2, 1, 3, 4)
    kernels = by_group.reshape(groups * channels, depth // groups, *window.kernel)  # OIHW
    down, across = Phase.all_of(window, 0), Phase.all_of(window, 1)
    size = [max(1, *(len(phase.taps) for phase in phases)) for phases in (down, across)]
    packed = []
    for rows, columns in product(down, across):
        part = np.zeros((*kernels.shape[:2], *size), weight.dtype)
        part[:, :, : len(rows.taps), : len(columns.taps)] = kernels[:, :, rows.taps][:, :, :, columns.taps]
        packed.append(pack_conv2d(part, groups, lanes))
    return np.stack(packed).reshape(len(down), len(across), *packed[0].shape)


def _convolve(data: te.Tensor, packed: te.Tensor, window: Window, groups: int, shape: tuple[int, ...]) -> te.Tensor:
    _, height, width, _ = (int(n) for n in data.shape)
    rows, columns, depth, lanes = (int(n) for n in packed.shape[4:])
    per_group = shape[3] // groups
    ry, rx, rc = (te.reduce_axis((0, n), name) for n, name in ((rows, "ry"), (columns, "rx"), (depth, "rc")))

    def sum_over_taps(n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        (phase_y, row), (phase_x, column) = (_position(window, axis, at) for axis, at in enumerate((y, x)))
        row, column = row + ry * tap_step(window, 0), column + rx * tap_step(window, 1)
        inside = tirx.all(row >= 0, row < height, column >= 0, column < width)
        group, channel = c // per_group, c % per_group
        value = te.if_then_else(inside, data[n, row, column, group * depth + rc], tirx.const(0, "float32"))
        weight = packed[phase_y, phase_x, group, channel // lanes, ry, rx, rc, channel % lanes]
        return te.sum(value * weight, axis=[ry, rx, rc])

    attrs = {ANCHOR: CONV2D_TRANSPOSE, "window": window.annotation()}
    return te.compute(shape, sum_over_taps, name=CONV2D_TRANSPOSE, attrs=attrs)


def _position(window: Window, axis: int, at: Expr) -> tuple[Expr, Expr]:
    """Return the phase of a position of the result, and where its first tap lies in the input."""
    padded, stride = at + window.padding[axis], window.strides[axis]
    offsets = [phase.offset for phase in Phase.all_of(window, axis)]
    return padded % stride, padded // stride + pick(offsets, padded % stride)


def _each_channel(data: te.Tensor, taps: te.Tensor, window: Window, shape: tuple[int, ...]) -> te.Tensor:
    """Return the sum over the taps [KH, KW, C] that meet the input; which those are is the same for all channels."""
    _, height, width, _ = (int(n) for n in data.shape)
    ry, rx = (te.reduce_axis((0, extent), name) for extent, name in zip(window.kernel, ("ry", "rx"), strict=True))

    def sum_over_taps(n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        value = read_into(
            window, (height, width), (y, x), (ry, rx), lambda row, column: data[n, row, column, c] * taps[ry, rx, c]
        )
        return te.sum(value, axis=[ry, rx])

    return te.compute(shape, sum_over_taps, name="depthwise_conv2d_transpose")
