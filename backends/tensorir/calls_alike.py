"""Calls of operators that are like an earlier one, as those of repeated layers are: forms make the function of one of
them.

    add(x, bias0); add(y, bias1)  ->  call_tir(add, (x, bias0)); call_tir(add, (y, bias1))

TVM would make a function of each call, and drop all but the first of those that are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.ir import GenericConst
from tvm_ffi import StructuralKey

from backends.tensorir.legalize.common import FLegalize, is_float
from fusion.bindings import call_arguments, callee, is_call_tir


@dataclass(frozen=True)
class _Form:
    """What a form made of a call.

    Attributes:
        call: It.
        places: Which of the operands it reads, in order.
    """

    call: relax.Call
    places: tuple[int, ...]

    def of(self, operands: Sequence[relax.Expr]) -> relax.Call:
        """Return the same of other `operands`."""
        given = relax.Tuple([operands[place] for place in self.places])
        made = self.call
        return relax.Call(made.op, [callee(made), given, *made.args[2:]], made.attrs, made.ty_args)


@dataclass
class CallsAlike:
    """What forms made of the calls of one module."""

    _forms: dict[object, _Form | None] = field(default_factory=dict, init=False)

    def remembering(self, form: FLegalize) -> FLegalize:
        """Return `form`, which calls `form` for the first of the calls that are alike."""

        def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
            operands = call.args[:]
            key = _key(call, operands)
            known = self._forms.get(key) if key is not None else None
            if known is not None:
                return known.of(operands)
            made = form(builder, call)
            if key is not None:
                self._forms[key] = _reused(made, operands)
            return made

        return legalize


def _reused(made: relax.Expr, operands: Sequence[relax.Expr]) -> _Form | None:
    """Return what stands for calls that are alike; None where it is no call of one kernel with some of `operands`."""
    if not is_call_tir(made):
        return None
    places = [_place(argument, operands) for argument in call_arguments(made)]
    return None if None in places else _Form(made, tuple(place for place in places if place is not None))


def _place(argument: relax.Expr, operands: Sequence[relax.Expr]) -> int | None:
    return next((place for place, operand in enumerate(operands) if operand.same_as(argument)), None)


def _key(call: relax.Call, operands: Sequence[relax.Expr]) -> object | None:
    """Return what all calls that are alike have in common; None of a call that may be like no other."""
    if call.ty_args:
        return None
    parts = list[object]()
    for place, operand in enumerate(operands):
        part = _tensor(operand) or _number(operand)
        if part is None:
            return None
        parts.append((_place(operand, operands[:place]), *part))
    return (str(call.op.name), None if call.attrs is None else StructuralKey(call.attrs), *parts)


def _tensor(operand: relax.Expr) -> tuple[object, ...] | None:
    """Return the kind of an operand of which forms know nothing more: of constants they look into those of one element,
    and of whole numbers."""
    if not isinstance(operand.ty, relax.TensorType):
        return None
    if isinstance(operand, relax.Var):
        return "variable", StructuralKey(operand.ty)
    if not isinstance(operand, GenericConst) or not isinstance(operand.value, tvm.runtime.Tensor):
        return None
    several = max(operand.value.shape, default=1) > 1
    return ("constant", StructuralKey(operand.ty)) if several and is_float(operand.value.dtype) else None


def _number(operand: relax.Expr) -> tuple[object, ...] | None:
    """Return an operand that is one number, -0 another one than 0."""
    value: Any = operand
    if isinstance(operand, GenericConst):
        if not isinstance(operand.value, tvm.runtime.Tensor) or max(operand.value.shape, default=1) > 1:
            return None
        array = operand.value.numpy()
        return StructuralKey(operand.ty), array.tobytes()
    if isinstance(value, tirx.FloatImm):
        return str(value.ty.dtype), float(value.value).hex()
    if isinstance(value, tirx.IntImm):
        return str(value.ty.dtype), int(value.value)
    if isinstance(operand, relax.ShapeExpr):
        return ("shape", StructuralKey(operand))
    return None
