"""Maximum over windows of N, H, W, C images, in the form that shares the kernel of a convolution."""

from __future__ import annotations

from functools import partial
from math import inf

from tvm import relax, te

from backends.cpu.kernels.shared.lowering.operands import FLOAT32, check_dtypes, check_elements
from backends.cpu.kernels.shared.window import Window, fitted_window, read_under
from backends.tensorir.emit import Expr
from backends.tensorir.legalize.common import largest
from fusion.bindings import data_of
from partition.access import POOL


def lower_channels_last_pool(builder: relax.BlockBuilder, call: relax.Call, lanes: int) -> relax.Expr:
    """Return a float32 NHWC `nn.max_pool2d` that says what its window is.

    Raises:
        Declined: It is of other elements.
    """
    data = data_of(call)
    check_dtypes(call, FLOAT32)
    check_elements(call, data)
    kernel = int(call.attrs.pool_size[0]), int(call.attrs.pool_size[1])
    window, ceil_mode = Window.of(call.attrs, kernel), bool(call.attrs.ceil_mode)
    window = fitted_window(window, list(data.ty.shape)[1:3], list(call.ty.shape)[1:3], ceil_mode)
    return builder.call_te(partial(_max_pool, window=window), data, primfunc_name_hint="max_pool2d")


def is_channels_last_pool(builder: relax.BlockBuilder, call: relax.Call, lanes: int) -> bool:
    """Return whether all channels of a pixel that a pooling reads lie together."""
    return str(call.attrs.layout) == "NHWC"


def _max_pool(data: te.Tensor, window: Window) -> te.Tensor:
    batch, height, width, channels = (int(n) for n in data.shape)
    ry, rx = (te.reduce_axis((0, n), name) for n, name in zip(window.kernel, ("ry", "rx"), strict=True))

    def of_window(n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        value = read_under(
            window,
            (height, width),
            pixel=(y, x),
            tap=(ry, rx),
            load=lambda row, column: data[n, row, column, c],
            outside=-inf,
        )
        return largest(value, axis=[ry, rx])

    shape = (batch, *window.output(height, width), channels)
    return te.compute(shape, of_window, name="max_pool2d", attrs={POOL: window.annotation()})
