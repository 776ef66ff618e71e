"""Convolution into few channels: one matmul gives every tap of every pixel, whose channels together fill vectors, then
the taps that belong to a pixel of the result are summed."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy.typing as npt
from tvm import relax, te

from backends.cpu.costs import FMA_PER_CYCLE
from backends.cpu.kernels.conv2d.costs import CHANNELS_TAP_CYCLES, TAP_CYCLES
from backends.cpu.kernels.shared.lowering.constant_matmul import matmul_of
from backends.cpu.kernels.shared.window import Window, read_under
from backends.tensorir.emit import Expr

Array = npt.NDArray[Any]


def pays_as_taps(shape: tuple[int, ...], window: Window, lanes: int) -> bool:
    """Return whether the multiply-adds that fuller vectors save, for OIHW weights of a shape, take longer than it does
    to put the taps together; a product is made for each pixel of the image, a sum for each of the result."""
    channels, depth, *kernel = shape
    taps = prod(kernel)
    vectors, together = taps * -(-channels // lanes), -(-taps * channels // lanes) * prod(window.strides)
    each = TAP_CYCLES if channels == 1 else CHANNELS_TAP_CYCLES
    return depth * (vectors - together) / FMA_PER_CYCLE > taps * channels * each


def taps_to_pixels(
    builder: relax.BlockBuilder, data: relax.Expr, weight: Array, window: Window, shape: tuple[int, ...], lanes: int
) -> relax.Expr:
    """Return the convolution of N, H, W, C `data` with OIHW weights, of N, H, W, C `shape`."""
    taps = weight.transpose(1, 2, 3, 0).reshape(weight.shape[1], -1)
    columns = builder.emit(matmul_of(data, taps, builder, lanes))
    compute = partial(_sum, window=window, shape=shape)
    return builder.call_te(compute, columns, primfunc_name_hint="taps_to_pixels")


def _sum(columns: te.Tensor, window: Window, shape: tuple[int, ...]) -> te.Tensor:
    size, channels = (int(columns.shape[1]), int(columns.shape[2])), shape[3]
    ry, rx = (te.reduce_axis((0, extent), name) for extent, name in zip(window.kernel, ("ry", "rx"), strict=True))

    def taps(n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        def load(row: Expr, column: Expr) -> Expr:
            return columns[n, row, column, (ry * window.kernel[1] + rx) * channels + c]

        return te.sum(read_under(window, size, (y, x), (ry, rx), load), axis=[ry, rx])

    return te.compute(shape, taps, name="taps_to_pixels")
