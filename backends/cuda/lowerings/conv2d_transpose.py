"""Transposed convolutions of images with channels last as anchors."""

from __future__ import annotations

from functools import partial

from tvm import relax, te, tirx

from backends.cuda.lowerings.product import anchor, rounded, sum_of_products
from backends.cuda.lowerings.window import ConvolutionWindow
from backends.tensorir.emit import Expr
from fusion.constants import reshaped, transposed
from fusion.declined import Declined
from fusion.shapes import static_shape


def lower_conv2d_transpose(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return a transposed convolution as an anchor.

    Raises:
        Declined: Its channels are not last.
    """
    data, weight = call.args
    attrs = call.attrs
    if (attrs.data_layout, attrs.kernel_layout) != ("NHWC", "IOHW"):
        raise Declined("its channels are not last")
    groups, shape = int(attrs.groups), static_shape(call)
    turned = transposed(builder, weight, (1, 2, 3, 0)) if groups == 1 else _made_last(builder, weight, groups)
    compute = partial(_sums_of_spread, window=ConvolutionWindow.of(attrs), shape=shape, dtype=str(call.ty.dtype.dtype))
    return builder.call_te(compute, data, turned, primfunc_name_hint="conv2d_transpose")


def _made_last(builder: relax.BlockBuilder, weight: relax.Expr, groups: int) -> relax.Expr:
    """Return weights of G groups, I x O/G x H x W, as H x W x I/G x O."""
    depth, made, height, width = static_shape(weight)
    by_group = reshaped(builder, weight, (groups, depth // groups, made, height, width))
    turned = transposed(builder, by_group, (3, 4, 1, 0, 2))
    return reshaped(builder, turned, (height, width, depth // groups, groups * made))


def _sums_of_spread(
    data: te.Tensor, weight: te.Tensor, *, window: ConvolutionWindow, shape: tuple[int, ...], dtype: str
) -> te.Tensor:
    """Each pixel is the sum of those that reach it by a tap: the others of the window count as zero."""
    sizes, extents, groups = [int(n) for n in data.shape[1:3]], [int(n) for n in weight.shape], window.groups
    *taps, depth = extents[1:] if groups == 1 else extents[:3]
    ry, rx, rc = (te.reduce_axis((0, n), name) for n, name in zip((*taps, depth), ("ry", "rx", "rc"), strict=True))

    def sum_over_taps(n: Expr, y: Expr, x: Expr, o: Expr) -> Expr:
        at, conditions = [], []
        for place, tap, axis in ((y, ry, 0), (x, rx, 1)):
            reached, stride = place + window.before[axis] - tap * window.dilations[axis], window.strides[axis]
            at.append(tirx.floordiv(reached, stride))
            conditions += [reached >= 0, at[-1] < sizes[axis]]
            conditions += [tirx.floormod(reached, stride).equal(0)] if stride > 1 else []
        first = 0 if groups == 1 else o // (shape[3] // groups) * depth
        value = tirx.if_then_else(tirx.all(*conditions), data(n, *at, first + rc), tirx.const(0, data.dtype))
        return sum_of_products(value, weight(o, ry, rx, rc) if groups == 1 else weight(ry, rx, rc, o), [ry, rx, rc])

    return rounded(anchor(shape, sum_over_taps, "conv2d_transpose"), dtype)
