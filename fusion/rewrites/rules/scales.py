"""Constant scales and shifts go into the constants of what is before or behind them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from tvm import relax
from tvm.relax import op

from fusion.constants import constant
from fusion.declined import Declined
from fusion.rewrites.graph import CONSTANT, Emit, Value
from fusion.rewrites.rule import Example, Rule, normal
from fusion.rewrites.rules.channels import INPUT, OUTPUT, along, channels, has_constant_weights, through_view

Array = npt.NDArray[Any]
Absorbed = Callable[[Emit], relax.Expr]
"""Emits a value times a scale, at no further operator."""


def operand_and_constant(root: Value) -> tuple[Value, Value] | None:
    """Return the operands of an operator with one constant, the constant last; only a product or a sum may have it
    first."""
    left, right = root.args
    if right.is_weight and left.op != CONSTANT and left.shape == root.shape:
        return left, right
    swapped = root.op in ("add", "multiply") and left.is_weight and right.op != CONSTANT and right.shape == root.shape
    return (right, left) if swapped else None


def full(weight: Value, value: Value) -> Array:
    """Return a constant with as many axes as `value`."""
    array = weight.array
    return array.reshape((1,) * (len(value.shape) - array.ndim) + array.shape)


def scale_of(root: Value, weight: Value, value: Value) -> Array:
    """Return what a product or quotient multiplies `value` by."""
    array = full(weight, value)
    with np.errstate(all="ignore"):
        scale = array if root.op == "multiply" else 1.0 / array
    return checked(scale, "the reciprocal")


def checked(array: Array, what: str) -> Array:
    """Return `array` where every element is 0 or a normal number."""
    tiny = np.finfo(array.dtype).tiny
    if not np.isfinite(array).all() or ((array != 0) & (np.abs(array) < tiny)).any():
        raise Declined(f"{what} would overflow or lose digits")
    return array


# --- Behind ---


def absorb(value: Value, scale: Array) -> Absorbed | None:
    """Return how to compute `value * scale` by changing constants only; None where none can take the scale.

    Args:
        scale: As many axes as `value`, each of extent 1 or that of `value`.
    """
    handler = _ABSORB.get(value.op) if value.reads == 1 else None
    return None if handler is None else handler(value, scale)


def _absorb_product(value: Value, scale: Array) -> Absorbed | None:
    found = operand_and_constant(value)
    if found is not None:
        other, weight = found
        merged = checked(scale_of(value, weight, other) * scale, "the product of the constants")
        return lambda emit: op.multiply(other.expr, constant(merged.astype(other.dtype)))
    for place, part in enumerate(value.args):
        inside = absorb(part, scale) if part.shape == value.shape and (not place or value.op == "multiply") else None
        if inside is not None:
            return _rebuilt(value, {place: inside})
    return None


def _absorb_sum(value: Value, scale: Array) -> Absorbed | None:
    inside: dict[int, Absorbed] = {}
    for place, part in enumerate(value.args):
        scaled = _scaled_weight(part, value, scale) if part.is_weight else None
        if scaled is None:
            scaled = absorb(part, scale) if part.shape == value.shape else None
        if scaled is None:
            return None
        inside[place] = scaled
    return _rebuilt(value, inside)


def _scaled_weight(weight: Value, value: Value, scale: Array) -> Absorbed | None:
    merged = full(weight, value) * scale
    return lambda emit: constant(merged.astype(weight.dtype))


def _absorb_linear(value: Value, scale: Array) -> Absorbed | None:
    if value.op == "matmul" and not value.weight.is_weight:
        return _absorb_matmul(value, scale)
    if not has_constant_weights(value):
        return None
    per_channel = channels(scale, OUTPUT[value.op][0])
    if per_channel is None:
        return None
    weight = value.weight
    factor = along(per_channel, OUTPUT[value.op][1], len(weight.shape))
    return _rebuilt(value, {1: lambda emit: emit.weight(weight, factor)})


def _absorb_matmul(value: Value, scale: Array) -> Absorbed | None:
    """One number goes into either operand."""
    for place, part in enumerate(value.args) if scale.size == 1 else ():
        inside = absorb(part, scale.reshape((1,) * len(part.shape)))
        if inside is not None:
            return _rebuilt(value, {place: inside})
    return None


def _absorb_view(value: Value, scale: Array) -> Absorbed | None:
    inner = through_view(value, scale)
    inside = None if inner is None else absorb(value.data, inner)
    return None if inside is None else _rebuilt(value, {0: inside})


def _absorb_norm(value: Value, scale: Array) -> Absorbed | None:
    per_element = norm_weight(value, scale)
    if per_element is None or not all(arg.is_weight for arg in value.args[1:]):
        return None
    return _rebuilt(value, {place: _times(arg, per_element) for place, arg in enumerate(value.args) if place})


def _times(weight: Value, factor: Array) -> Absorbed:
    return lambda emit: constant((weight.array * factor).astype(weight.dtype))


def norm_weight(value: Value, array: Array) -> Array | None:
    """Return an array over the axes of a normalisation's own constants; None where it varies along others too."""
    rank = len(value.shape)
    grouped = value.op in ("nn.instance_norm", "nn.group_norm")
    axes = [int(value.attrs.channel_axis) % rank] if grouped else [int(axis) % rank for axis in value.attrs.axes]
    if axes != sorted(axes) or any(extent > 1 and axis not in axes for axis, extent in enumerate(array.shape)):
        return None
    return np.broadcast_to(array, [value.shape[axis] if axis in axes else 1 for axis in range(rank)]).reshape(
        [value.shape[axis] for axis in axes]
    )


def _rebuilt(value: Value, inside: dict[int, Absorbed]) -> Absorbed:
    """Return `value` with some operands made anew."""

    def build(emit: Emit) -> relax.Expr:
        args = [arg.expr for arg in value.args]
        for place, absorbed in inside.items():
            made = absorbed(emit)
            args[place] = emit(made) if isinstance(made, relax.Call) else made
        old = value.bound
        return relax.Call(old.op, args, old.attrs, old.ty_args)

    return build


_ABSORB: dict[str, Callable[[Value, Array], Absorbed | None]] = {
    **dict.fromkeys(("multiply", "divide"), _absorb_product),
    **dict.fromkeys(("add", "subtract"), _absorb_sum),
    **dict.fromkeys(OUTPUT, _absorb_linear),
    **dict.fromkeys(("reshape", "permute_dims", "expand_dims", "squeeze", "flatten"), _absorb_view),
    **dict.fromkeys(("nn.layer_norm", "nn.rms_norm", "nn.group_norm", "nn.instance_norm"), _absorb_norm),
}
_PRODUCTS = frozenset(("multiply", "divide"))
_SUMS = frozenset(("add", "subtract"))


def _absorbed(root: Value) -> Absorbed | None:
    found = operand_and_constant(root)
    return None if found is None else absorb(found[0], scale_of(root, found[1], found[0]))


def _attention_example(b: relax.BlockBuilder, x: relax.Var, y: relax.Var) -> relax.Expr:
    made = b.emit(op.add(b.emit(op.matmul(x, normal(6, 12))), normal(12)))
    heads = b.emit(op.permute_dims(b.emit(op.reshape(made, (5, 3, 4))), [1, 0, 2]))
    return op.multiply(b.emit(op.matmul(heads, y)), relax.const(np.float32(0.3)))


def _read_twice(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    made = b.emit(op.nn.conv2d(x, normal(5, 4, 3, 3)))
    return op.add(b.emit(op.multiply(made, normal(5, 1, 1))), made)


SCALE_BEHIND = Rule(
    name="scale_behind",
    form="(x @ w + b) * c  ->  x @ (w * c) + b * c; the same through views, into the constants of convolutions, "
    "normalisations and products, and of what makes an operand of a product",
    source="ONNX Runtime's ConvMulFusion and MatMulScaleFusion; TVM's FoldScaleAxis",
    assumes="what overflows only before the scale, or only behind it, does not matter",
    roots=_PRODUCTS,
    match=_absorbed,
    build=lambda emit, root, absorbed: absorbed(emit),
    example=Example(_attention_example, ((5, 6), (3, 4, 7))),
    near_miss=Example(_read_twice, ((2, 4, 6, 7),)),
)


class _Shift(NamedTuple):
    """A sum of a constant and a value that nothing else reads."""

    value: Value
    shift: Array


def _shift(root: Value) -> _Shift | None:
    found = operand_and_constant(root)
    if found is None or found[0].reads != 1:
        return None
    value, weight = found
    return _Shift(value, full(weight, value) * (1 if root.op == "add" else -1))


def _shift_of_norm(root: Value) -> tuple[Value, Array] | None:
    """Return a normalisation and what its own shift has to grow by."""
    found = _shift(root)
    if found is None or found.value.op not in ("nn.layer_norm", "nn.group_norm", "nn.instance_norm"):
        return None
    per_element = norm_weight(found.value, found.shift)
    _, _, shift = found.value.args
    return None if per_element is None or not shift.is_weight else (found.value, per_element)


def _shifted_norm(emit: Emit, root: Value, found: tuple[Value, Array]) -> relax.Expr:
    norm, shift = found
    data, gamma, beta = norm.args
    call = norm.bound
    return relax.Call(call.op, [data.expr, gamma.expr, constant(beta.array + shift)], call.attrs, call.ty_args)


SHIFT_OF_NORM = Rule(
    name="shift_of_norm",
    form="layer_norm(x, g, b) + c  ->  layer_norm(x, g, b + c); group_norm and instance_norm likewise",
    source="ONNX Runtime's LayerNormFusion",
    assumes="nothing",
    roots=_SUMS,
    match=_shift_of_norm,
    build=_shifted_norm,
    example=Example(
        lambda b, x: op.add(b.emit(op.nn.layer_norm(x, normal(40), normal(40), [-1])), normal(1, 40)), ((3, 40),)
    ),
    near_miss=Example(
        lambda b, x: op.add(b.emit(op.nn.layer_norm(x, normal(40), normal(40), [-1])), normal(3, 1)), ((3, 40),)
    ),
)


def _two_shifts(root: Value) -> tuple[_Shift, _Shift] | None:
    second = _shift(root)
    inner = operand_and_constant(second.value) if second and second.value.op in _SUMS else None
    if second is None or inner is None:
        return None
    value, weight = inner
    return _Shift(value, full(weight, value) * (1 if second.value.op == "add" else -1)), second


def _shift_behind(emit: Emit, root: Value, found: tuple[_Shift, _Shift]) -> relax.Expr:
    (value, first), (_, second) = found
    if np.array_equal(first, -second):
        raise Declined("the constants cancel: that may be meant to round")
    return op.add(value.expr, constant((first + second).astype(value.dtype)))


def _shifted_twice(b: relax.BlockBuilder, x: relax.Var, second: float = 2.0) -> relax.Expr:
    return op.add(b.emit(op.add(x, relax.const(np.float32(8.0)))), relax.const(np.float32(second)))


SHIFT_BEHIND = Rule(
    name="shift_behind",
    form="x + c1 + c2  ->  x + (c1 + c2)",
    source="DNNFusion, associative rules; ONNX Runtime's ConvAddFusion",
    assumes="the constants do not cancel, as they do where (x + c) - c rounds x",
    roots=_SUMS,
    match=_two_shifts,
    build=_shift_behind,
    example=Example(_shifted_twice, ((3, 40),)),
    near_miss=Example(lambda b, x: _shifted_twice(b, x, -8.0), ((3, 40),)),
    declines="cancel",
)


# --- In front ---


def _constant_in_front(root: Value, steps: frozenset[str]) -> tuple[Value, Value, Array] | None:
    """Return the step before a convolution or product with constant weights, its operand, and its constant."""
    if root.op not in INPUT or not has_constant_weights(root):
        return None
    step = root.data
    found = operand_and_constant(step) if step.op in steps and step.reads == 1 else None
    if found is None:
        return None
    data, weight = found
    per_channel = channels(full(weight, data), INPUT[root.op][0])
    return None if per_channel is None else (step, data, per_channel)


def _scale_in_front(emit: Emit, root: Value, found: tuple[Value, Value, Array]) -> relax.Expr:
    step, data, per_channel = found
    with np.errstate(all="ignore"):
        scale = checked(per_channel if step.op == "multiply" else 1.0 / per_channel, "the reciprocal")
    weight = emit.weight(root.weight, _for_inputs(root, scale))
    call = root.bound
    return relax.Call(call.op, [data.expr, weight], call.attrs, call.ty_args)


def _for_inputs(root: Value, per_channel: Array) -> Array:
    """Return one number per channel of the input, or one for all, so that it broadcasts to the weights."""
    weight, axis = root.weight, INPUT[root.op][1]
    if per_channel.size == 1:
        return per_channel.reshape((1,) * len(weight.shape))
    groups = 1 if root.op == "matmul" else int(root.attrs.groups)
    if groups == 1:
        return along(per_channel, axis, len(weight.shape))
    rows = np.repeat(per_channel.reshape(groups, -1), weight.shape[0] // groups, axis=0)
    return rows.reshape(*rows.shape, *[1] * (len(weight.shape) - 2))


def _depthwise_example(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    made = b.emit(op.multiply(b.emit(op.nn.relu(x)), normal(4, 1, 1)))
    return op.nn.conv2d(made, normal(8, 1, 3, 3), padding=1, groups=4)


SCALE_IN_FRONT = Rule(
    name="scale_in_front",
    form="conv(x * c, w)  ->  conv(x, c * w); c / 6 of a hard swish among them",
    source="TVM's FoldScaleAxis (forward)",
    assumes="what overflows only before the scale, or only behind it, does not matter",
    roots=frozenset(INPUT),
    match=lambda root: _constant_in_front(root, _PRODUCTS),
    build=_scale_in_front,
    example=Example(_depthwise_example, ((2, 4, 6, 7),)),
    near_miss=Example(
        lambda b, x: op.nn.conv2d(b.emit(op.multiply(x, normal(1, 6, 7))), normal(8, 4, 3, 3)), ((2, 4, 6, 7),)
    ),
)


def _shifted_linear(root: Value) -> tuple[Value, Value, Value, Value, Array] | None:
    found = operand_and_constant(root)
    linear = found[0] if found else None
    if found is None or linear is None or linear.reads != 1:
        return None
    front = _constant_in_front(linear, _SUMS)
    return None if front is None else (*found, *front)


def _shift_in_front(emit: Emit, root: Value, found: tuple[Value, Value, Value, Value, Array]) -> relax.Expr:
    linear, bias, step, data, per_channel = found
    if linear.op != "matmul" and any(int(width) for width in linear.attrs.padding):
        raise Declined("the border is padded with zeros, not with the shift")
    shift = per_channel * (1.0 if step.op == "add" else -1.0)
    axis, weight_axis = OUTPUT[linear.op]
    weight = linear.weight.array.astype("float64")
    spread = np.broadcast_to(_for_inputs(linear, shift), weight.shape) * weight
    total = spread.sum(tuple(place for place in range(weight.ndim) if place != weight_axis))
    own = full(bias, linear) * (1.0 if root.op == "add" else -1.0)
    call = linear.bound
    made = emit(relax.Call(call.op, [data.expr, linear.weight.expr], call.attrs, call.ty_args))
    return op.add(made, constant((along(total, axis, len(linear.shape)) + own).astype(linear.dtype)))


def _padded_example(b: relax.BlockBuilder, x: relax.Var, padding: int = 0) -> relax.Expr:
    moved = b.emit(op.add(b.emit(op.nn.relu(x)), normal(4, 1, 1)))
    return op.add(b.emit(op.nn.conv2d(moved, normal(8, 2, 3, 3), padding=padding, groups=2)), normal(8, 1, 1))


SHIFT_IN_FRONT = Rule(
    name="shift_in_front",
    form="conv(x + c, w) + b  ->  conv(x, w) + (conv(c, w) + b)",
    source="distributive; how OpenVINO folds the means of images",
    assumes="no padding",
    roots=_SUMS,
    match=_shifted_linear,
    build=_shift_in_front,
    example=Example(_padded_example, ((2, 4, 6, 7),)),
    near_miss=Example(lambda b, x: _padded_example(b, x, 1), ((2, 4, 6, 7),)),
    declines="padded with zeros",
)
