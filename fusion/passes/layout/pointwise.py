"""Products of weights with data as it lies: 1x1 convolutions of row-major images, and matmuls of transposed rows."""

from __future__ import annotations

from math import prod

from tvm import relax
from tvm.ir import GenericConst

from fusion.passes.layout import order as orders
from fusion.passes.layout.call_context import CallContext
from fusion.passes.layout.placed import Placed, move, reshaped, row_major
from fusion.passes.rebuild import constant


def as_product(context: CallContext, call: relax.Call, data: Placed) -> Placed | None:
    """Return a 1x1 convolution of a row-major image, N x C x H x W, as the product of its weights, O x C (G x O/G x C/G
    in groups), with N images of C x HW; None where it is another convolution or channels-last costs less.

    Neighbouring pixels are lanes then, and nothing is transposed: on two Zen 4 cores 256 to 128 channels over 56x56
    take 958 us, 1146 with the transposes around the channels-last form; 16 to 32 over 240x240 take 306 us, not 1680.
    """
    weight, attrs = call.args[1], call.attrs
    if not data.is_row_major or attrs.data_layout != "NCHW" or not isinstance(weight, GenericConst):
        return None
    if orders.same_storage(data.order, orders.channels_last(len(data.shape)), data.shape):
        return None  # one pixel lies channels-last as well, and its channels fill lanes
    values = weight.value.numpy()
    if any(int(padding) for padding in attrs.padding) or values.shape[1:] == (1, 1, 1) or not prod(data.shape):
        return None
    batch, made, height, width = (int(extent) for extent in call.ty.shape)
    channels, groups, pixels = data.shape[1], int(attrs.groups), height * width
    if values.shape[2:] != (1, 1):
        return None
    wasted = context.policy.padding_cycles(made * values.shape[1], pixels)
    turned = context.policy.move_cycles(batch * made * pixels)
    last, shape = orders.channels_last(4), (batch, made, height, width)
    is_wanted_last = context.is_disliked(orders.identity(4), shape) and not context.is_disliked(last, shape)
    if wasted + is_wanted_last * turned >= context.policy.move_cycles(prod(data.shape)) + (not is_wanted_last) * turned:
        return None
    builder = context.builder
    grouped = (groups,) if groups > 1 else ()
    matrix = values.reshape(*grouped, made // groups, channels // groups)
    read = builder.emit(_strided(builder, data, [int(stride) for stride in attrs.strides]))
    image = builder.emit(relax.op.reshape(read, (batch, *grouped, channels // groups, pixels)))
    product = builder.emit(relax.op.matmul(constant(matrix), image))
    return row_major(builder.emit(relax.op.reshape(product, (batch, made, height, width))))


def _strided(builder: relax.BlockBuilder, image: Placed, strides: list[int]) -> relax.Expr:
    """Return the pixels of a row-major image that a 1x1 convolution reads."""
    stored = move(builder, image, orders.identity(len(image.shape)))
    if strides == [1, 1]:
        return stored
    return relax.op.strided_slice(stored, [2, 3], [0, 0], list(image.shape[2:]), strides)


def columns_times_weights(context: CallContext, call: relax.Call, data: Placed) -> Placed | None:
    """Return `matmul(data, weights)`, whose rows lie as the columns of a matrix, as the product of the transposed
    weights with it, whose result lies so too; None where it is another matmul or costs more than moving the data.

    Of an MLP across the patches of an image, as in MLP-Mixer, neither product needs a transpose then.
    """
    weight = call.args[1]
    *_, reduced = range(len(data.shape))
    if not isinstance(weight, GenericConst) or str(call.ty.dtype.dtype) != "float32" or not prod(data.shape):
        return None
    stored, place = orders.stored_shape(data.order, data.shape), data.position(reduced)
    before, depth, behind = prod(stored[:place]), stored[place], prod(stored[place + 1 :])
    made = int(call.ty.shape[-1])
    shape = (*data.shape[:-1], made)
    rows = (*(axis for axis in data.order if axis != reduced), reduced)
    cost = before * context.policy.padding_cycles(depth * made, behind)
    cost += context.is_disliked(data.order, shape) * context.policy.move_cycles(prod(shape))
    moved = context.policy.move_cycles(prod(data.shape))
    if cost >= moved + context.is_disliked(rows, shape) * context.policy.move_cycles(prod(shape)):
        return None
    columns = reshaped(context.builder, data.stored, (before, depth, behind))
    product = context.builder.emit(relax.op.matmul(constant(weight.value.numpy().T), columns))
    return Placed(reshaped(context.builder, product, orders.stored_shape(data.order, shape)), data.order, shape)
