"""Windows over N, C, H, W tensors that leave the channels apart: depthwise convolution, max and average pooling."""

from __future__ import annotations

from functools import partial
from math import inf, prod
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax, te

from backends.cpu.kernels.shared.lowering.operands import (
    FLOAT32,
    check_dtypes,
    check_elements,
)
from backends.cpu.kernels.shared.window import Window, fitted_window, read_under
from backends.tensorir.emit import Expr
from backends.tensorir.legalize.common import largest
from fusion.bindings import data_of
from fusion.constants import reshaped
from fusion.declined import Declined
from fusion.shapes import static_shape
from partition.access import ANCHOR

PLANAR = "planar_window"


def lower_planar_depthwise(builder: relax.BlockBuilder, call: relax.Call, lanes: int) -> relax.Expr:
    """Return an `nn.conv2d` that `is_planar_depthwise` as an anchor.

    Raises:
        Declined: It has other operands.
    """
    data, weight = call.args
    check_dtypes(call, FLOAT32)
    check_elements(call, data)
    channels, _, *kernel = static_shape(weight)
    window = Window.of(call.attrs, (kernel[0], kernel[1]))
    taps = reshaped(builder, weight, (channels, *kernel))
    return builder.call_te(partial(_convolve, window=window), data, taps, primfunc_name_hint="depthwise_conv2d")


def is_planar_depthwise(builder: relax.BlockBuilder, call: relax.Call, lanes: int) -> bool:
    """Return whether a convolution has one input and one output channel per group, each plane by plane."""
    data, weight = call.args
    is_planar = (call.attrs.data_layout, call.attrs.kernel_layout) == ("NCHW", "OIHW")
    return is_planar and int(call.attrs.groups) == int(data.ty.shape[1]) == int(weight.ty.shape[0])


def is_planar_pool(builder: relax.BlockBuilder, call: relax.Call, lanes: int) -> bool:
    """Return whether the channels of what a pooling reads lie plane by plane."""
    return str(call.attrs.layout) == "NCHW"


def lower_planar_pool(builder: relax.BlockBuilder, call: relax.Call, lanes: int) -> relax.Expr:
    """Return an NCHW max or average pooling as an anchor, an average over the whole image as a mean.

    ONNX leaves open what an average counts in a window that `ceil_mode` puts past the padding; TVM's form decides.

    Raises:
        Declined: It is of other elements, or such an average.
    """
    attrs, data = call.attrs, data_of(call)
    averages = "avg" in call.op.name
    check_dtypes(call, FLOAT32)
    check_elements(call, data)
    if averages and attrs.ceil_mode:
        raise Declined("with ceil_mode, windows may lie past the padding, and what they count is open")
    window = Window.of(attrs, (int(attrs.pool_size[0]), int(attrs.pool_size[1])))
    window = fitted_window(window, list(data.ty.shape)[2:], list(call.ty.shape)[2:], bool(attrs.ceil_mode))
    if not averages:
        return builder.call_te(partial(_max_pool, window=window), data, primfunc_name_hint="max_pool2d")
    _, _, height, width = (int(n) for n in data.ty.shape)
    if window.kernel == (height, width) and not any(window.padding):  # 7 us for 1x544x7x7, 12 as windows
        return builder.emit(relax.op.mean(data, [2, 3], keepdims=True))
    counted = np.full((1, 1), prod(window.kernel)) if attrs.count_include_pad else _valid_taps(window, data)
    counts = relax.const(counted.astype("float32"))
    return builder.call_te(partial(_avg_pool, window=window), data, counts, primfunc_name_hint="avg_pool2d")


def _valid_taps(window: Window, data: relax.Expr) -> npt.NDArray[Any]:
    """Return how many taps of each window lie inside the image: height x width of the output, 1 x 1 where all do."""
    if not any(window.padding):
        return np.full((1, 1), prod(window.kernel))
    image = (int(data.ty.shape[2]), int(data.ty.shape[3]))
    along = []
    for axis, extent in enumerate(window.output(*image)):
        first = np.arange(extent)[:, None] * window.strides[axis] - window.padding[axis]
        taps = first + np.arange(window.kernel[axis]) * window.dilation[axis]
        along.append(((taps >= 0) & (taps < image[axis])).sum(axis=1))
    rows, columns = along
    counts: npt.NDArray[Any] = np.maximum(rows[:, None] * columns, 1)
    return counts


def _convolve(data: te.Tensor, weight: te.Tensor, window: Window) -> te.Tensor:
    return _over_window(data, weight, window, te.sum, 0.0)


def _max_pool(data: te.Tensor, window: Window) -> te.Tensor:
    return _over_window(data, None, window, largest, -inf)


def _avg_pool(data: te.Tensor, counts: te.Tensor, window: Window) -> te.Tensor:
    total = _over_window(data, None, window, te.sum, 0.0)
    rows, columns = (int(extent) > 1 for extent in counts.shape)
    return te.compute(
        total.shape, lambda n, c, y, x: total[n, c, y, x] / counts[y if rows else 0, x if columns else 0], "mean"
    )


def _over_window(data: te.Tensor, weight: te.Tensor | None, window: Window, combine: Expr, outside: float) -> te.Tensor:
    batch, channels, height, width = (int(n) for n in data.shape)
    ry, rx = (te.reduce_axis((0, n), name) for n, name in zip(window.kernel, ("ry", "rx"), strict=True))

    def reduce_window(n: Expr, c: Expr, y: Expr, x: Expr) -> Expr:
        value = read_under(
            window,
            (height, width),
            pixel=(y, x),
            tap=(ry, rx),
            load=lambda row, column: data[n, c, row, column],
            outside=outside,
        )
        return combine(value if weight is None else value * weight[c, ry, rx], axis=[ry, rx])

    attrs = {ANCHOR: PLANAR, "window": window.annotation(), "takes_max": int(combine is largest)}
    return te.compute((batch, channels, *window.output(height, width)), reduce_window, name=PLANAR, attrs=attrs)
