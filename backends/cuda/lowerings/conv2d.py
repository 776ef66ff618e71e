"""Convolutions of images with channels last as anchors."""

from __future__ import annotations

from functools import partial

from tvm import relax, te, tirx

from backends.cuda.lowerings.product import anchor, rounded, sum_of_products
from backends.cuda.lowerings.window import ConvolutionWindow
from backends.tensorir.emit import Expr
from fusion.constants import transposed
from fusion.declined import Declined

_SUMMED_LAST, _MADE_LAST = (0, 2, 3, 1), (2, 3, 1, 0)
"""Orders of the axes O, I, H, W of weights."""


def lower_conv2d(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return a convolution as an anchor.

    Raises:
        Declined: Its channels are not last.
    """
    data, weight = call.args
    attrs = call.attrs
    if (attrs.data_layout, attrs.kernel_layout) != ("NHWC", "OIHW"):
        raise Declined("its channels are not last")
    # Neighbours are those of the image: channels that are summed or, in groups, which have few of them, made.
    order = _SUMMED_LAST if int(attrs.groups) == 1 else _MADE_LAST
    turned = transposed(builder, weight, order)
    compute = partial(_sums_of_windows, window=ConvolutionWindow.of(attrs), dtype=str(call.ty.dtype.dtype))
    return builder.call_te(compute, data, turned, primfunc_name_hint="conv2d")


def _sums_of_windows(data: te.Tensor, weight: te.Tensor, window: ConvolutionWindow, dtype: str) -> te.Tensor:
    images, *sizes, _ = (int(n) for n in data.shape)
    extents = [int(n) for n in weight.shape]
    channels, *taps, depth = extents if window.groups == 1 else (extents[3], extents[0], extents[1], extents[2])
    made = [
        (size + before + behind - dilation * (tap - 1) - 1) // stride + 1
        for size, tap, before, behind, dilation, stride in zip(
            sizes, taps, window.before, window.behind, window.dilations, window.strides, strict=True
        )
    ]
    ry, rx, rc = (te.reduce_axis((0, n), name) for n, name in zip((*taps, depth), ("ry", "rx", "rc"), strict=True))

    def sum_over_window(n: Expr, y: Expr, x: Expr, o: Expr) -> Expr:
        at, conditions = [], []
        for place, tap, axis in ((y, ry, 0), (x, rx, 1)):
            position = place * window.strides[axis] + tap * window.dilations[axis] - window.before[axis]
            at.append(position)
            if window.before[axis]:
                conditions.append(position >= 0)
            if window.behind[axis]:
                conditions.append(position < sizes[axis])
        first = 0 if window.groups == 1 else o // (channels // window.groups) * depth
        value = data(n, *at, first + rc)
        if conditions:
            value = tirx.if_then_else(tirx.all(*conditions), value, tirx.const(0, data.dtype))
        taken = weight(o, ry, rx, rc) if window.groups == 1 else weight(ry, rx, rc, o)
        return sum_of_products(value, taken, [ry, rx, rc])

    return rounded(anchor((images, *made, channels), sum_over_window, "conv2d"), dtype)
