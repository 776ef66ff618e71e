"""Lowers transposed convolution over N, H, W, C activations."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from math import prod

import numpy as np
from tvm import relax, te, tirx

from backends.cpu.kernels.conv2d_transpose.columns_to_image import columns_to_image
from backends.cpu.kernels.conv2d_transpose.phases import Phase, pick, tap_step
from backends.cpu.kernels.shared.lowering.operands import (
    FLOAT32,
    check_dtypes,
    check_elements,
    check_layouts,
    constant_weights,
    is_constant,
)
from backends.cpu.kernels.shared.lowering.packing import EACH_TAP, Array, Packing, pack_conv2d, packed_weights
from backends.cpu.kernels.shared.window import Window, read_into, taps_that_meet
from backends.tensorir.emit import Expr
from fusion.shapes import static_shape
from partition.access import ANCHOR

CONV2D_TRANSPOSE = "conv2d_transpose"


def lower_conv2d_transpose(builder: relax.BlockBuilder, call: relax.Call, lanes: int) -> relax.Expr:
    """Return a channels-last float32 `nn.conv2d_transpose` with IOHW weights as an anchor, or, where each channel has a
    kernel of its own, as stages over vectors of channels.

    Raises:
        Declined: It is another one.
    """
    data, weight = call.args
    check_dtypes(call, FLOAT32)
    check_layouts(call, "NHWC", "IOHW")
    check_elements(call)
    depth, made, *kernel = static_shape(weight)
    window, groups = Window.of(call.attrs, (kernel[0], kernel[1])), int(call.attrs.groups)
    shape = static_shape(call)
    if groups > 1 and groups == depth == shape[3]:
        taps = packed_weights(builder, weight, EACH_TAP)
        compute = partial(_each_channel, window=window, shape=shape)
        return builder.call_te(compute, data, taps, primfunc_name_hint="depthwise_conv2d_transpose")
    if is_constant(weight) and groups == 1 and _fits_in_columns(made, window, lanes):
        values = constant_weights(call)
        return columns_to_image(builder, data, weight=values, window=window, shape=shape, lanes=lanes)
    packed = packed_weights(builder, weight, _PHASES, groups, window, lanes)
    compute = partial(_convolve, window=window, groups=groups, shape=shape)
    return builder.call_te(compute, data, packed, primfunc_name_hint=CONV2D_TRANSPOSE)


def _fits_in_columns(channels: int, window: Window, lanes: int) -> bool:
    """Return whether the taps of all channels fill vectors so much better than those of each tap alone that a pass to
    put them in place pays: 24 to 1 channels, 2x2 taps of stride 2 over 240x240 took 230 us so, 810 by phases."""
    taps = prod(window.kernel)
    return bool(taps * -(-channels // lanes) >= 2 * -(-taps * channels // lanes))


def _pack(weight: Array, groups: int, window: Window, lanes: int) -> Array:
    """Return IOHW weights as [phase of y, phase of x, groups, ceil(O / lanes), taps, taps, I, lanes], zeros where a
    phase has fewer taps than another."""
    depth, channels, *_ = weight.shape
    by_group = weight.reshape(groups, depth // groups, channels, *window.kernel).transpose(0, 2, 1, 3, 4)
    kernels = by_group.reshape(groups * channels, depth // groups, *window.kernel)  # OIHW
    down, across = Phase.all_of(window, 0), Phase.all_of(window, 1)
    size = [_most_taps(phases) for phases in (down, across)]
    packed = []
    for rows, columns in product(down, across):
        part = np.zeros((*kernels.shape[:2], *size), weight.dtype)
        part[:, :, : len(rows.taps), : len(columns.taps)] = kernels[:, :, rows.taps][:, :, :, columns.taps]
        packed.append(pack_conv2d(part, groups, lanes))
    return np.stack(packed).reshape(len(down), len(across), *packed[0].shape)


def _most_taps(phases: Sequence[Phase]) -> int:
    """Return how many taps the phases of an axis have at most, 1 where they have none."""
    return max(1, *(len(phase.taps) for phase in phases))


def _write_phases(weight: te.Tensor, groups: int, window: Window, lanes: int) -> te.Tensor:
    """Write `_pack`."""
    depth, channels = int(weight.shape[0]) // groups, int(weight.shape[1])
    phases = [Phase.all_of(window, axis) for axis in (0, 1)]
    size = [_most_taps(each) for each in phases]
    taps = [
        [tap for phase in each for tap in (*phase.taps, *[_NO_TAP] * (most - len(phase.taps)))]
        for each, most in zip(phases, size, strict=True)
    ]

    def value(*at: Expr) -> Expr:
        *phase, group, panel, ry, rx, k, lane = at
        row, column = (pick(taps[axis], phase[axis] * size[axis] + tap) for axis, tap in enumerate((ry, rx)))
        channel = panel * lanes + lane
        exists = tirx.all(row != _NO_TAP, column != _NO_TAP, channel < channels)
        return te.if_then_else(exists, weight[group * depth + k, channel, row, column], tirx.const(0, weight.dtype))

    extents = (*map(len, phases), groups, -(-channels // lanes), *size, depth, lanes)
    return te.compute(extents, value, name="packed")


_NO_TAP = -1
_PHASES = Packing(_pack, _write_phases)


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
    ry, rx = (te.reduce_axis((0, taps_that_meet(window, axis)), name) for axis, name in enumerate(("ry", "rx")))

    def sum_over_taps(n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        def load(row: Expr, column: Expr, tap_y: Expr, tap_x: Expr) -> Expr:
            return data[n, row, column, c] * taps[tap_y, tap_x, c]

        return te.sum(read_into(window, (height, width), (y, x), (ry, rx), load), axis=[ry, rx])

    return te.compute(shape, sum_over_taps, name="depthwise_conv2d_transpose")
