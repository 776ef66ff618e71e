"""Products of weights with data as it lies: 1x1 convolutions of row-major images, and matmuls of transposed rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from tvm import relax
from tvm.ir import GenericConst

from fusion.bindings import operand
from fusion.constants import constant, reshaped
from fusion.declined import Declined
from fusion.passes.layout import order as orders
from fusion.passes.layout.call_context import CallContext
from fusion.passes.layout.placed import Placed, move, row_major
from fusion.shapes import static_shape


@dataclass(frozen=True)
class Pointwise:
    """A product that takes the place of an operator, so that data stays as it lies.

    Attributes:
        what: What is not done where it declines, for notes.
        concerns: Whether an operator, with the data that it reads, has this form; others are not asked why not.
        build: Returns the result, given both operands. Raises `Declined` where another form is better.
    """

    what: str
    concerns: Callable[[relax.Call, Placed], bool]
    build: Callable[[CallContext, relax.Call, Placed, Placed], Placed]


def _is_pointwise(call: relax.Call, data: Placed) -> bool:
    """Return whether a convolution is a 1x1 one of a row-major image of several pixels, and not depthwise."""
    weight, attrs = operand(call, "weight"), call.attrs
    if not data.is_row_major or attrs.data_layout != "NCHW":
        return False
    if orders.same_storage(data.order, orders.channels_last(len(data.shape)), data.shape):
        return False  # one pixel lies channels-last as well, and its channels fill lanes
    shape = static_shape(weight)
    is_plain = str(call.ty.dtype.dtype) == "float32" and not any(int(padding) for padding in attrs.padding)
    return is_plain and shape[2:] == (1, 1) and shape[1] != 1 and prod(data.shape) > 0


def as_product(context: CallContext, call: relax.Call, data: Placed, weight: Placed) -> Placed:
    """Return a 1x1 convolution of a row-major image, N x C x H x W, as the product of its weights, O x C (G x O/G x C/G
    in groups), with N images of C x HW.

    Neighbouring pixels are lanes then, and nothing is transposed: on two Zen 4 cores 256 to 128 channels over 56x56
    take 958 us, 1146 with the transposes around the channels-last form; 16 to 32 over 240x240 take 306 us, not 1680.

    Raises:
        Declined: Channels-last costs less.
    """
    attrs = call.attrs
    batch, made, height, width = (int(extent) for extent in call.ty.shape)
    channels, groups, pixels = data.shape[1], int(attrs.groups), height * width
    wasted = context.policy.padding_cycles(made * weight.shape[1], pixels)
    turned = context.policy.move_cycles(batch * made * pixels)
    last, shape = orders.channels_last(4), (batch, made, height, width)
    is_wanted_last = context.is_disliked(orders.identity(4), shape) and not context.is_disliked(last, shape)
    if wasted + is_wanted_last * turned >= context.policy.move_cycles(prod(data.shape)) + (not is_wanted_last) * turned:
        raise Declined("storing the image channels-last costs less")
    builder = context.builder
    grouped = (groups,) if groups > 1 else ()
    stored = move(builder, weight, orders.identity(len(weight.shape)))
    matrix = reshaped(builder, stored, (*grouped, made // groups, channels // groups))
    read = builder.emit(_strided(builder, data, [int(stride) for stride in attrs.strides]))
    image = builder.emit(relax.op.reshape(read, (batch, *grouped, channels // groups, pixels)))
    product = builder.emit(relax.op.matmul(matrix, image, str(call.ty.dtype.dtype)))
    return row_major(builder.emit(relax.op.reshape(product, (batch, made, height, width))))


def _strided(builder: relax.BlockBuilder, image: Placed, strides: list[int]) -> relax.Expr:
    """Return the pixels of a row-major image that a 1x1 convolution reads."""
    stored = move(builder, image, orders.identity(len(image.shape)))
    if strides == [1, 1]:
        return stored
    return relax.op.strided_slice(stored, [2, 3], [0, 0], list(image.shape[2:]), strides)


def _reads_columns(call: relax.Call, data: Placed) -> bool:
    """Return whether a matmul multiplies rows, whose numbers lie apart, by one matrix."""
    rank = len(data.shape)
    return operand(call, "x2").ty.ndim == 2 and rank >= 3 and not orders.last_axis_is(data.order, rank - 1, data.shape)


def columns_times_weights(context: CallContext, call: relax.Call, data: Placed, weight: Placed) -> Placed:
    """Return `matmul(data, weights)`, whose rows lie as the columns of a matrix, as the product of the transposed
    weights with it, whose result lies so too.

    Of an MLP across the patches of an image, as in MLP-Mixer, neither product needs a transpose then.

    Raises:
        Declined: There are no weights in float32, or it costs more than moving the data.
    """
    *_, reduced = range(len(data.shape))
    if not isinstance(weight.stored, GenericConst):
        raise Declined("its weights are no constant")
    if str(call.ty.dtype.dtype) != "float32" or not prod(data.shape):
        raise Declined(f"it computes in {call.ty.dtype.dtype}" if prod(data.shape) else "it has no elements")
    stored, place = orders.stored_shape(data.order, data.shape), data.position(reduced)
    before, depth, behind = prod(stored[:place]), stored[place], prod(stored[place + 1 :])
    made = int(call.ty.shape[-1])
    shape = (*data.shape[:-1], made)
    rows = (*(axis for axis in data.order if axis != reduced), reduced)
    cost = before * context.policy.padding_cycles(depth * made, behind)
    cost += context.is_disliked(data.order, shape) * context.policy.move_cycles(prod(shape))
    moved = context.policy.move_cycles(prod(data.shape))
    if cost >= moved + context.is_disliked(rows, shape) * context.policy.move_cycles(prod(shape)):
        raise Declined("bringing the numbers of its rows together costs less")
    columns = reshaped(context.builder, data.stored, (before, depth, behind))
    turned = constant(weight.stored.value.numpy().T)
    product = context.builder.emit(relax.op.matmul(turned, columns, str(call.ty.dtype.dtype)))
    return Placed(reshaped(context.builder, product, orders.stored_shape(data.order, shape)), data.order, shape)


POINTWISE: dict[str, Pointwise] = {
    "nn.conv2d": Pointwise("not computed as a product with the image as it lies", _is_pointwise, as_product),
    "matmul": Pointwise(
        "not computed as a product with its columns as they lie", _reads_columns, columns_times_weights
    ),
}
