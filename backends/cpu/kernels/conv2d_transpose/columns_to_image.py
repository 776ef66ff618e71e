"""Transposed convolution into few channels: one matmul gives every tap of every pixel, whose channels together fill
vectors, then the taps are put (or summed) where they belong."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy.typing as npt
from tvm import relax, te

from backends.cpu.kernels.shared.lowering.constant_matmul import matmul_of
from backends.cpu.kernels.shared.window import Window, read_into, taps_that_meet
from backends.tensorir.emit import Expr

Array = npt.NDArray[Any]


def columns_to_image(
    builder: relax.BlockBuilder, data: relax.Expr, weight: Array, window: Window, shape: tuple[int, ...], lanes: int
) -> relax.Expr:
    """Return the transposed convolution of N, H, W, C `data` with IOHW weights, of N, H, W, C `shape`."""
    taps = weight.transpose(0, 2, 3, 1).reshape(weight.shape[0], -1)
    columns = builder.emit(matmul_of(data, taps, builder, lanes))
    _, height, width, channels = shape
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
    kw = window.kernel[1]
    size = int(columns.shape[1]), int(columns.shape[2])
    ry, rx = (te.reduce_axis((0, taps_that_meet(window, axis)), name) for axis, name in enumerate(("ry", "rx")))

    def taps(n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        def load(row: Expr, column: Expr, tap_y: Expr, tap_x: Expr) -> Expr:
            return columns[n, row, column, (tap_y * kw + tap_x) * channels + c]

        return te.sum(read_into(window, size, (y, x), (ry, rx), load), axis=[ry, rx])

    return te.compute((columns.shape[0], height, width, channels), taps, name="columns_to_image")
