"""What each operator does with the storage order of its operands.

A rule gets the call and its operands as `Placed` tensors and returns the result(s) as such, or raises `Declined`: the
operator then runs on row-major operands. Rules only relabel axes; those that change what is computed, for the same
result, are those of `pointwise`, which are asked first.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tvm import relax
from tvm.ir import GenericConst

from fusion.bindings import call_name
from fusion.constants import reshaped
from fusion.declined import Declined
from fusion.operators import OperatorKind, of_kind
from fusion.passes.layout import order as orders
from fusion.passes.layout.call_context import CallContext, Rule
from fusion.passes.layout.factored import Factored, reshape
from fusion.passes.layout.order import Order, Shape
from fusion.passes.layout.placed import Placed, move, row_major
from fusion.passes.rebuild import with_attrs
from fusion.shapes import static_shape


def _emit(context: CallContext, call: relax.Call, order: Order) -> Placed:
    """Bind a call whose result is stored in `order` and return it under its logical shape."""
    result = context.builder.emit(call)
    shape = static_shape(result)
    return Placed(result, order, tuple(shape[order.index(axis)] for axis in range(len(shape))))


def _spatial(context: CallContext, call: relax.Call, args: list[Placed]) -> Placed:
    """Pooling, resize and convolution on N, C, spatial: run channels-last, or as they are where that is as fast."""
    data, *others = args
    attrs = call.attrs
    layout = getattr(attrs, "data_layout", None) or attrs.layout
    rank = len(data.shape)
    if layout != "NC" + "DHW"[5 - rank :]:
        raise Declined(f"its layout is {layout}")
    order, last = orders.channels_last(rank), "N" + layout[2:] + "C"
    is_row_major = data.is_row_major and not orders.same_storage(data.order, order, data.shape)
    if is_row_major and context.policy.has_row_major_kernel(call):
        order, last = orders.identity(rank), layout
    changes = {name: last for name in ("data_layout", "layout", "out_layout") if hasattr(attrs, name)}
    weights = [move(context.builder, other, orders.identity(len(other.shape))) for other in others]
    operands = [move(context.builder, data, order), *weights, *call.args[len(args) :]]
    return _emit(context, with_attrs(call, operands, **changes), order)


def _convolution(context: CallContext, call: relax.Call, args: list[Placed]) -> Placed:
    """conv2d and its transpose: channels-last where there is an anchor for them."""
    reason = context.policy.why_not_channels_last(call, args[1].stored)
    if reason:
        raise Declined(reason)
    return _spatial(context, call, args)


def _elementwise(context: CallContext, call: relax.Call, args: list[Placed]) -> Placed:
    """Unary, binary and ternary operators with broadcasting."""
    order = _cheapest_order(context, args, static_shape(context.builder.normalize(call)))
    operands = [_broadcastable(context, arg, order) for arg in args]
    return _emit(context, with_attrs(call, [*operands, *call.args[len(args) :]]), order)


def _cheapest_order(context: CallContext, args: Sequence[Placed], shape: Shape) -> Order:
    """Return the order of an operand for which fewest elements move: those of the other operands, and of the result of
    `shape` where another order is wanted."""
    whole = [arg for arg in args if len(arg.shape) == len(shape)]
    turned = sorted((arg for arg in whole if not arg.is_row_major), key=lambda arg: prod(arg.shape), reverse=True)
    held = [arg for arg in whole if not isinstance(arg.stored, GenericConst)]

    def moved(order: Order) -> int:
        apart = sum(prod(arg.shape) for arg in held if not orders.same_storage(arg.order, order, arg.shape))
        return apart + prod(shape) * context.is_disliked(order, shape)

    candidates = [arg.order for arg in turned]
    if any(arg.is_row_major for arg in held):
        candidates.append(orders.identity(len(shape)))
    return min(candidates, key=moved, default=orders.identity(len(shape)))


def _broadcastable(context: CallContext, arg: Placed, order: Order) -> relax.Expr:
    """Return an operand of lower or equal rank so that it broadcasts against a tensor stored in `order`."""
    if not arg.shape or (prod(arg.shape) == 1 and len(arg.shape) < len(order)):
        return arg.stored
    missing = len(order) - len(arg.shape)
    if order == orders.identity(len(order)):
        return move(context.builder, arg, orders.identity(len(arg.shape)))
    if missing:
        shape = (1,) * missing + arg.shape
        arg = row_major(reshaped(context.builder, move(context.builder, arg, orders.identity(len(arg.shape))), shape))
    return move(context.builder, arg, order)


def _along_axis(context: CallContext, call: relax.Call, args: list[Placed]) -> Placed:
    """softmax, cumsum and the like: one axis, shape kept."""
    data = args[0]
    if call.attrs.axis is None:
        raise Declined("it runs over all elements in their order")
    return _emit(context, with_attrs(call, [data.stored], axis=data.position(int(call.attrs.axis))), data.order)


def _normalize(context: CallContext, call: relax.Call, args: list[Placed]) -> Placed:
    """layer_norm, rms_norm: axes in the order of gamma; group_norm, instance_norm also name the channel axis."""
    data, *weights = args
    axes = [data.position(int(axis)) for axis in call.attrs.axes]
    changes: dict[str, object] = {"axes": axes}
    if call_name(call) in ("nn.layer_norm", "nn.rms_norm") and axes != sorted(axes):
        raise Declined("its weights have their axes in another order")
    if hasattr(call.attrs, "channel_axis"):
        changes["channel_axis"] = data.position(int(call.attrs.channel_axis))
    return _emit(context, with_attrs(call, [data.stored, *(w.stored for w in weights)], **changes), data.order)


def _channel(context: CallContext, call: relax.Call, args: list[Placed]) -> Placed:
    """prelu: a weight along one axis."""
    data, *weights = args
    changed = with_attrs(call, [data.stored, *(w.stored for w in weights)], axis=data.position(int(call.attrs.axis)))
    return _emit(context, changed, data.order)


def _reduce(context: CallContext, call: relax.Call, args: list[Placed]) -> Placed:
    """sum, mean, max and the like over some axes."""
    data = args[0]
    if call.attrs.axis is None:
        raise Declined("it runs over all elements in their order")
    given = call.attrs.axis
    single = isinstance(given, int) or not hasattr(given, "__len__")
    axes = {int(axis) % len(data.shape) for axis in ([given] if single else given)}
    places = sorted(data.order.index(axis) for axis in axes)
    changed = with_attrs(call, [data.stored], axis=places[0] if single else places)
    if call.attrs.keepdims:
        return _emit(context, changed, data.order)
    kept = [axis for axis in range(len(data.shape)) if axis not in axes]
    return _emit(context, changed, tuple(kept.index(axis) for axis in data.order if axis not in axes))


def _permute(context: CallContext, call: relax.Call, args: list[Placed]) -> Placed:
    """A transpose moves nothing: the result is the same storage under other names."""
    data = args[0]
    axes = orders.transposed_axes(call.attrs.axes, len(data.shape))
    return Placed(data.stored, orders.permuted(data.order, axes), tuple(data.shape[axis] for axis in axes))


def _reshape(context: CallContext, call: relax.Call, args: list[Placed]) -> Placed | Factored:
    """reshape, squeeze, expand_dims, flatten: the same memory under other names wherever the axes divide."""
    (data,) = args
    shape = static_shape(context.builder.normalize(call))
    try:
        return reshape(context.builder, data, shape)
    except Declined as reason:
        needed, result = orders.reshape(data.order, data.shape, shape)
        if not orders.same_storage(needed, data.order, data.shape):
            context.note(call, "its operand moves", reason)
    moved = move(context.builder, data, needed)
    return Placed(reshaped(context.builder, moved, orders.stored_shape(result, shape)), result, shape)


def _concat(context: CallContext, call: relax.Call, args: list[Placed]) -> Placed:
    """Join along the renamed axis."""
    order = _cheapest_order(context, args, static_shape(context.builder.normalize(call)))
    operands = relax.Tuple([move(context.builder, arg, order) for arg in args])
    axis = order.index(int(call.attrs.axis or 0) % len(order))
    return _emit(context, with_attrs(call, [operands], axis=axis), order)


def _split(context: CallContext, call: relax.Call, args: list[Placed]) -> list[Placed]:
    data = args[0]
    parts = context.builder.emit(with_attrs(call, [data.stored], axis=data.position(int(call.attrs.axis))))
    return [_emit(context, relax.TupleGetItem(parts, index), data.order) for index in range(len(parts.ty.fields))]


def _strided_slice(context: CallContext, call: relax.Call, args: list[Placed]) -> Placed:
    data = args[0]
    axes, begin, end, *strides = ([int(number) for number in arg] for arg in call.args[1:])
    places = [data.position(axis) for axis in axes]
    sliced = relax.op.strided_slice(data.stored, places, begin, end, *strides, assume_inbound=call.attrs.assume_inbound)
    return _emit(context, sliced, data.order)


def _pad(context: CallContext, call: relax.Call, args: list[Placed]) -> Placed:
    data = args[0]
    widths = [int(width) for width in call.attrs.pad_width]
    renamed = [width for axis in data.order for width in widths[2 * axis : 2 * axis + 2]]
    return _emit(context, with_attrs(call, [data.stored, *call.args[1:]], pad_width=renamed), data.order)


def _take(context: CallContext, call: relax.Call, args: list[Placed]) -> Placed:
    """A row of indices along one axis, as paddings that reflect are; rows of a table stay rows."""
    data, *indices = args
    if call.attrs.axis is None or data.is_row_major or len(indices) != 1 or len(indices[0].shape) != 1:
        raise Declined("it does not take rows along one axis")
    axis = data.position(int(call.attrs.axis))
    return _emit(context, with_attrs(call, [data.stored, indices[0].stored], axis=axis), data.order)


def _matmul(context: CallContext, call: relax.Call, args: list[Placed]) -> Placed:
    """Rows times a weight matrix: any order of the rows will do as long as the reduced axis is contiguous."""
    data, weight = args
    rank = len(data.shape)
    if len(weight.shape) != 2 or rank < 3:  # batches, and what has one order of its rows only
        operands = [move(context.builder, arg, orders.identity(len(arg.shape))) for arg in args]
        return row_major(context.builder.emit(with_attrs(call, operands)))
    if not orders.last_axis_is(data.order, rank - 1, data.shape):
        raise Declined("the numbers of a row, which it sums up, lie apart")
    order = (*(axis for axis in data.order if axis != rank - 1), rank - 1)
    stored = move(context.builder, data, order)
    return _emit(context, with_attrs(call, [stored, move(context.builder, weight, (0, 1))]), order)


RULES: dict[str, Rule] = {
    **dict.fromkeys(of_kind(OperatorKind.ELEMENTWISE), _elementwise),
    **dict.fromkeys(of_kind(OperatorKind.POOL, OperatorKind.RESIZE), _spatial),
    **dict.fromkeys(("nn.conv2d", "nn.conv2d_transpose"), _convolution),
    **dict.fromkeys(of_kind(OperatorKind.ALONG_AXIS), _along_axis),
    **dict.fromkeys(of_kind(OperatorKind.ROW_NORM, OperatorKind.CHANNEL_NORM), _normalize),
    **dict.fromkeys(of_kind(OperatorKind.REDUCTION), _reduce),
    **dict.fromkeys(of_kind(OperatorKind.RESHAPE), _reshape),
    "nn.prelu": _channel,
    "permute_dims": _permute,
    "concat": _concat,
    "split": _split,
    "strided_slice": _strided_slice,
    "take": _take,
    "nn.pad": _pad,
    "matmul": _matmul,
}
