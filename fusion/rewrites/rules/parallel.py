"""Products and convolutions of the same operand that are summed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from tvm import relax
from tvm.relax import op

from fusion.constants import constant
from fusion.declined import Declined
from fusion.rewrites.graph import Emit, Value
from fusion.rewrites.patterns import Parts, total
from fusion.rewrites.rule import Example, Rule, normal
from fusion.rewrites.rules.channels import has_constant_weights

Array = npt.NDArray[Any]
_LINEAR = ("matmul", "nn.conv2d")


class _Pair(NamedTuple):
    first: Value
    second: Value
    others: Parts
    number: float


def _pair(root: Value) -> _Pair | None:
    """Return two terms that multiply the same operand with known weights, and the other terms."""
    number, terms = total(root)
    linear = [(value, sign) for value, sign in terms if value.op in _LINEAR and value.shape == root.shape]
    for place, (first, one) in enumerate(linear):
        for second, other in linear[place + 1 :]:
            same = first.op == second.op and first.data is second.data and one == other == 1.0
            if same and all(each.reads == 1 and has_constant_weights(each) for each in (first, second)):
                others = [part for part in terms if part[0] not in (first, second)]
                return _Pair(first, second, others, number)
    return None


def _merged(emit: Emit, root: Value, found: _Pair) -> relax.Expr:
    first, second, others, number = found
    if first.op == "matmul":
        made = op.matmul(first.data.expr, constant(first.weight.array + second.weight.array))
    else:
        made = _convolution(*sorted((first, second), key=lambda value: value.weight.shape[2]))
    for value, sign in others:
        made = (op.add if sign > 0 else op.subtract)(emit(made), value.expr)
    return op.add(emit(made), relax.const(number, root.dtype)) if number else made


def _convolution(small: Value, large: Value) -> relax.Expr:
    attrs, other = large.attrs, small.attrs
    if any(list(getattr(other, name)) != list(getattr(attrs, name)) for name in ("strides", "dilation")) or int(
        attrs.groups
    ) != int(other.groups):
        raise Declined("strides, dilation or groups differ")
    weight, within = large.weight.array, small.weight.array
    wider = [big - little for big, little in zip(weight.shape[2:], within.shape[2:], strict=True)]
    margins = [int(big) - int(little) for big, little in zip(attrs.padding, other.padding, strict=True)]
    steps = list(map(int, attrs.dilation))
    before, behind = margins[:2], margins[2:]
    fits = all(
        top >= 0 and end >= 0 and top % step == 0 and top + end == extra * step
        for top, end, extra, step in zip(before, behind, wider, steps, strict=True)
    )
    if not fits:
        raise Declined("one window does not lie within the other")
    spread = [(top // step, end // step) for top, end, step in zip(before, behind, steps, strict=True)]
    padded = np.pad(within, [(0, 0), (0, 0), *spread])
    call = large.bound
    return relax.Call(call.op, [large.data.expr, constant(weight + padded)], call.attrs, call.ty_args)


def _branches(b: relax.BlockBuilder, x: relax.Var, padding: int = 1) -> relax.Expr:
    wide = b.emit(op.nn.conv2d(x, normal(8, 4, 3, 3), padding=padding))
    wide = b.emit(op.add(wide, normal(1, 8, 1, 1)))
    return op.add(wide, b.emit(op.nn.conv2d(x, normal(8, 4, 1, 1), padding=padding - 1)))


PARALLEL_SUM = Rule(
    name="parallel_sum",
    form="conv(x, w1) + conv(x, w2)  ->  conv(x, w1 + w2), the smaller window padded with zeros",
    source="DNNFusion, distributive rules; RepVGG (Ding et al., CVPR 2021)",
    assumes="the weights do not cancel",
    roots=frozenset(("add", "subtract")),
    match=_pair,
    build=_merged,
    example=Example(_branches, ((2, 4, 6, 7),)),
    near_miss=Example(
        lambda b, x: op.add(
            b.emit(op.nn.conv2d(x, normal(8, 4, 3, 3), padding=[0, 0, 2, 2])),
            b.emit(op.nn.conv2d(x, normal(8, 4, 3, 3), padding=[1, 1, 1, 1])),
        ),
        ((2, 4, 6, 7),),
    ),
    declines="within the other",
)
