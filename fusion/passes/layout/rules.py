"""What each operator does with the storage order of its operands.

A rule gets the call and its operands as `Placed` tensors and returns the result(s) as `Placed`; it may return None
to decline, and the operator then runs on row-major operands. Rules only relabel axes; the one that changes what is
computed, for the same result, is that of 1x1 convolutions (`pointwise`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tvm import relax
from tvm.ir import GenericConst

from fusion.passes.layout import order as orders
from fusion.passes.layout.order import Order, Shape
from fusion.passes.layout.placed import Placed, move, row_major
from fusion.passes.layout.planar import runs_row_major
from fusion.passes.layout.pointwise import as_product
from fusion.passes.rebuild import call_name, constant, static_shape, with_attrs

Rule = Callable[[relax.BlockBuilder, relax.Call, list[Placed]], "Placed | list[Placed] | None"]


def _emit(builder: relax.BlockBuilder, call: relax.Call, order: Order) -> Placed:
    """Bind a call whose result is stored in `order` and return it under its logical shape."""
    result = builder.emit(call)
    shape = static_shape(result)
    return Placed(result, order, tuple(shape[order.index(axis)] for axis in range(len(shape))))


def _spatial(builder: relax.BlockBuilder, call: relax.Call, args: list[Placed]) -> Placed | None:
    """Pooling, resize and convolution on N, C, spatial: run channels-last, or as they are where that is as fast."""
    data, *others = args
    attrs = call.attrs
    layout = getattr(attrs, "data_layout", None) or attrs.layout
    rank = len(data.shape)
    if layout != "NC" + "DHW"[5 - rank :]:
        return None
    order, last = orders.channels_last(rank), "N" + layout[2:] + "C"
    if runs_row_major(call, data):
        order, last = orders.identity(rank), layout
    changes = {name: last for name in ("data_layout", "layout", "out_layout") if hasattr(attrs, name)}
    operands = [move(builder, data, order), *(other.stored for other in others), *call.args[len(args) :]]
    return _emit(builder, with_attrs(call, operands, **changes), order)


def _conv2d(builder: relax.BlockBuilder, call: relax.Call, args: list[Placed], lanes: int) -> Placed | None:
    """A product where the image is row-major and the kernel 1x1, otherwise as `_convolution`."""
    is_float = str(call.ty.dtype.dtype) == "float32"
    product = as_product(builder, call, args[0], lanes) if is_float else None
    return product or _convolution(builder, call, args)


def _convolution(builder: relax.BlockBuilder, call: relax.Call, args: list[Placed]) -> Placed | None:
    """conv2d and its transpose: channels-last where there is an anchor for them; TVM has no other NHWC form with
    OIHW weights."""
    is_float = str(call.ty.dtype.dtype) == "float32" and isinstance(args[1].stored, GenericConst)
    return _spatial(builder, call, args) if is_float else None


def _elementwise(builder: relax.BlockBuilder, call: relax.Call, args: list[Placed]) -> Placed | None:
    """Unary, binary and ternary operators with broadcasting: follow the largest operand that is not row-major."""
    rank = max(len(arg.shape) for arg in args)
    placed = [arg for arg in args if len(arg.shape) == rank and not arg.is_row_major]
    if not placed:
        return None
    order = max(placed, key=lambda arg: _elements(arg.shape)).order
    operands = [_broadcastable(builder, arg, order) for arg in args]
    return _emit(builder, with_attrs(call, [*operands, *call.args[len(args) :]]), order)


def _broadcastable(builder: relax.BlockBuilder, arg: Placed, order: Order) -> relax.Expr:
    """Return an operand of lower or equal rank so that it broadcasts against a tensor stored in `order`."""
    if not arg.shape or (_elements(arg.shape) == 1 and len(arg.shape) < len(order)):
        return arg.stored
    missing = len(order) - len(arg.shape)
    if missing:
        shape = (1,) * missing + arg.shape
        arg = row_major(_reshaped(builder, move(builder, arg, orders.identity(len(arg.shape))), shape))
    return move(builder, arg, order)


def _reshaped(builder: relax.BlockBuilder, data: relax.Expr, shape: Shape) -> relax.Expr:
    if isinstance(data, GenericConst):
        return constant(data.value.numpy().reshape(shape))
    return builder.emit(relax.op.reshape(data, shape))


def _elements(shape: Sequence[int]) -> int:
    total = 1
    for extent in shape:
        total *= extent
    return total


def _along_axis(builder: relax.BlockBuilder, call: relax.Call, args: list[Placed]) -> Placed | None:
    """softmax, cumsum and the like: one axis, shape kept."""
    data = args[0]
    if call.attrs.axis is None:
        return None
    return _emit(builder, with_attrs(call, [data.stored], axis=data.position(int(call.attrs.axis))), data.order)


def _normalize(builder: relax.BlockBuilder, call: relax.Call, args: list[Placed]) -> Placed | None:
    """layer_norm, rms_norm: axes in the order of gamma; group_norm, instance_norm also name the channel axis."""
    data, *weights = args
    axes = [data.position(int(axis)) for axis in call.attrs.axes]
    changes: dict[str, object] = {"axes": axes}
    if call_name(call) in ("nn.layer_norm", "nn.rms_norm") and axes != sorted(axes):
        return None
    if hasattr(call.attrs, "channel_axis"):
        changes["channel_axis"] = data.position(int(call.attrs.channel_axis))
    return _emit(builder, with_attrs(call, [data.stored, *(w.stored for w in weights)], **changes), data.order)


def _channel(builder: relax.BlockBuilder, call: relax.Call, args: list[Placed]) -> Placed:
    """prelu: a weight along one axis."""
    data, *weights = args
    changed = with_attrs(call, [data.stored, *(w.stored for w in weights)], axis=data.position(int(call.attrs.axis)))
    return _emit(builder, changed, data.order)


def _reduce(builder: relax.BlockBuilder, call: relax.Call, args: list[Placed]) -> Placed | None:
    """sum, mean, max and the like over some axes."""
    data = args[0]
    if call.attrs.axis is None:
        return None
    given = call.attrs.axis
    single = isinstance(given, int) or not hasattr(given, "__len__")
    axes = {int(axis) % len(data.shape) for axis in ([given] if single else given)}
    places = sorted(data.order.index(axis) for axis in axes)
    changed = with_attrs(call, [data.stored], axis=places[0] if single else places)
    if call.attrs.keepdims:
        return _emit(builder, changed, data.order)
    kept = [axis for axis in range(len(data.shape)) if axis not in axes]
    return _emit(builder, changed, tuple(kept.index(axis) for axis in data.order if axis not in axes))


def _permute(builder: relax.BlockBuilder, call: relax.Call, args: list[Placed]) -> Placed:
    """A transpose moves nothing: the result is the same storage under other names."""
    data = args[0]
    rank = len(data.shape)
    given = call.attrs.axes
    axes = tuple(int(axis) % rank for axis in given) if given is not None else tuple(reversed(range(rank)))
    return Placed(data.stored, orders.permuted(data.order, axes), tuple(data.shape[axis] for axis in axes))


def _reshape(builder: relax.BlockBuilder, call: relax.Call, args: list[Placed]) -> Placed:
    """reshape, squeeze, expand_dims, flatten: keep the order where the merged or split axes lie together."""
    data = args[0]
    shape = tuple(int(extent) for extent in builder.normalize(call).ty.shape)
    needed, result = orders.reshape(data.order, data.shape, shape)
    moved = move(builder, data, needed)
    stored = orders.stored_shape(result, shape)
    if static_shape(moved) == stored:
        return Placed(moved, result, shape)
    return Placed(_reshaped(builder, moved, stored), result, shape)


def _concat(builder: relax.BlockBuilder, call: relax.Call, args: list[Placed]) -> Placed | None:
    """Join along the renamed axis, in the order of the largest operand."""
    order = max(args, key=lambda arg: _elements(arg.shape)).order
    operands = relax.Tuple([move(builder, arg, order) for arg in args])
    axis = order.index(int(call.attrs.axis or 0) % len(order))
    return _emit(builder, with_attrs(call, [operands], axis=axis), order)


def _split(builder: relax.BlockBuilder, call: relax.Call, args: list[Placed]) -> list[Placed]:
    data = args[0]
    parts = builder.emit(with_attrs(call, [data.stored], axis=data.position(int(call.attrs.axis))))
    return [_emit(builder, relax.TupleGetItem(parts, index), data.order) for index in range(len(parts.ty.fields))]


def _strided_slice(builder: relax.BlockBuilder, call: relax.Call, args: list[Placed]) -> Placed:
    data = args[0]
    axes, begin, end, *strides = ([int(number) for number in arg] for arg in call.args[1:])
    places = [data.position(axis) for axis in axes]
    sliced = relax.op.strided_slice(data.stored, places, begin, end, *strides, assume_inbound=call.attrs.assume_inbound)
    return _emit(builder, sliced, data.order)


def _pad(builder: relax.BlockBuilder, call: relax.Call, args: list[Placed]) -> Placed:
    data = args[0]
    widths = [int(width) for width in call.attrs.pad_width]
    renamed = [width for axis in data.order for width in widths[2 * axis : 2 * axis + 2]]
    return _emit(builder, with_attrs(call, [data.stored, *call.args[1:]], pad_width=renamed), data.order)


def _matmul(builder: relax.BlockBuilder, call: relax.Call, args: list[Placed]) -> Placed | None:
    """Rows times a weight matrix: any order of the rows will do as long as the reduced axis is contiguous."""
    data, weight = args
    rank = len(data.shape)
    if len(weight.shape) != 2 or rank < 3 or not orders.last_axis_is(data.order, rank - 1, data.shape):
        return None
    order = (*(axis for axis in data.order if axis != rank - 1), rank - 1)
    stored = move(builder, data, order)
    return _emit(builder, with_attrs(call, [stored, move(builder, weight, (0, 1))]), order)


_ELEMENTWISE = """
    abs acos acosh add asin asinh astype atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor ceil clip cos
    cosh divide equal erf exp floor floor_divide floor_mod greater greater_equal isfinite isinf isnan left_shift less
    less_equal log log_add_exp logical_and logical_not logical_or logical_xor maximum minimum mod multiply negative
    nn.gelu nn.gelu_tanh nn.leakyrelu nn.relu nn.selu nn.silu nn.softplus not_equal power right_shift round rsqrt
    sigmoid sign sin sinh sqrt square subtract tan tanh trunc where
""".split()  # noqa: SIM905 -- a list of words
_POOLS = [f"nn.{kind}_pool{rank}d" for kind in ("max", "avg", "adaptive_avg") for rank in (1, 2, 3)]

_RULES: dict[str, Rule] = {
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
    **dict.fromkeys((*_POOLS, "image.resize2d"), _spatial),
    "nn.conv2d_transpose": _convolution,
    **dict.fromkeys(("nn.softmax", "nn.log_softmax", "cumsum", "cumprod"), _along_axis),
    **dict.fromkeys(("nn.layer_norm", "nn.rms_norm", "nn.group_norm", "nn.instance_norm"), _normalize),
    **dict.fromkeys(("mean", "sum", "max", "min", "prod", "variance", "std", "argmax", "argmin"), _reduce),
    **dict.fromkeys(("reshape", "squeeze", "expand_dims", "flatten", "nn.batch_flatten"), _reshape),
    "nn.prelu": _channel,
    "permute_dims": _permute,
    "concat": _concat,
    "split": _split,
    "strided_slice": _strided_slice,
    "nn.pad": _pad,
    "matmul": _matmul,
}


def rules(vector_lanes: int) -> dict[str, Rule]:
    """Return the rule of each operator that has one; `vector_lanes`: float32 lanes of a vector."""
    return _RULES | {"nn.conv2d": partial(_conv2d, lanes=vector_lanes)}
