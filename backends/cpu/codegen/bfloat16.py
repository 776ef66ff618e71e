"""What TVM's passes for bfloat16 pass over: `BF16ComputeLegalize` does not look into a `Let`, and `BF16StorageLegalize`
leaves the dtype of a broadcast as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import Call, PrimType, TensorLoad
from tvm_ffi.structural import StructuralMutator

from backends.tensorir.exact_values import lanes_of
from fusion.structural import Rule, contains, mutate

Expr = Any
_ROUNDED = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div)
_OPERATIONS = (
    *_ROUNDED, tirx.Max, tirx.Min, tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.Select
)  # fmt: skip
_FIELDS = {tirx.Select: ("condition", "true_value", "false_value")}


def compute_in_lets() -> tvm.transform.Pass:
    """`T.Let(v, where={v: T.Cast("float32", x)})`  ->  `T.Let(v, where={v: T.reinterpret("float32", bits << 16)})`"""

    def compute(let: tirx.Let, mutator: StructuralMutator) -> Expr:
        result = _InFloat32().rewrite(let)
        return _cut(result) if _is_narrow(let) else result

    return _pass(tirx.Let, _holds_narrow, compute, "compute_in_lets")


def broadcast_bits() -> tvm.transform.Pass:
    """`T.Broadcast(x, 32)`  ->  `T.reinterpret("bfloat16x32", T.Broadcast(T.reinterpret("uint16", x), 32))`"""

    def bits(found: tirx.Broadcast, mutator: StructuralMutator) -> Expr:
        if not _is_narrow(found):
            return mutator.default_mutate(found)
        return tirx.reinterpret(found.ty.dtype, tirx.Broadcast(_bits(mutator.mutate(found.value)), found.lanes))

    return _pass(tirx.Broadcast, _is_narrow, bits, "broadcast_bits")


def _pass(kind: type, concerns: Callable[[Expr], bool], rule: Rule, name: str) -> tvm.transform.Pass:
    """Return the pass that applies `rule` to functions with a node of `kind` that it concerns."""

    def rewrite(func: tirx.PrimFunc, mod: tvm.IRModule, ctx: tvm.transform.PassContext) -> tirx.PrimFunc:
        return func.with_body(mutate(func.body, [(kind, rule)])) if contains(func.body, (kind, concerns)) else func

    return tirx.transform.prim_func_pass(rewrite, opt_level=0, name=name)


def _is_narrow(expr: Expr) -> bool:
    return isinstance(expr.ty, PrimType) and str(expr.ty.dtype).startswith("bfloat16")


def _holds_narrow(let: tirx.Let) -> bool:
    return contains(let, ((TensorLoad, tirx.Cast, tirx.Var, tirx.FloatImm), _is_narrow))


def _bits(value: Expr) -> Expr:
    return tirx.reinterpret("uint16" + lanes_of(value), value)


def _wide(value: Expr) -> Expr:
    """Return a value of bfloat16 as float32, others as they are."""
    if not _is_narrow(value):
        return value
    high = tirx.shift_left(_bits(value).astype("uint32" + lanes_of(value)), tirx.const(16, "uint32"))
    return tirx.reinterpret("float32" + lanes_of(value), high)


def _wide_number(number: tirx.FloatImm) -> tirx.FloatImm:
    return tirx.const(number.value, "float32") if _is_narrow(number) else number


def _narrow(value: Expr) -> Expr:
    """Return a value as bfloat16, the nearest and ties to even."""
    value = value.astype("float32" + lanes_of(value))
    half, one, width = (tirx.const(number, "uint32") for number in (0x7FFF, 1, 16))
    bits = tirx.reinterpret("uint32" + lanes_of(value), value)
    odd = tirx.bitwise_and(tirx.shift_right(bits, width), one)
    return _upper_half(bits + half + odd)


def _cut(value: Expr) -> Expr:
    """Return a float32 that bfloat16 has as that."""
    return _upper_half(tirx.reinterpret("uint32" + lanes_of(value), value))


def _upper_half(bits: Expr) -> Expr:
    high = tirx.shift_right(bits, tirx.const(16, "uint32"))
    return tirx.reinterpret("bfloat16" + lanes_of(bits), high.astype("uint16" + lanes_of(bits)))


class _InFloat32:
    """Rewrites an expression so that only loads in it are of bfloat16; knows the variables of its `Let`s."""

    def __init__(self) -> None:
        self._moved: dict[tirx.Var, tirx.Var] = {}

    def rewrite(self, value: Expr) -> Expr:
        """Return `value`, in float32 if it is of bfloat16."""
        rules: list[tuple[Any, Rule]] = [
            (TensorLoad, lambda load, mutator: _wide(mutator.default_mutate(load))),
            (tirx.FloatImm, lambda number, mutator: _wide_number(number)),
            (tirx.Var, lambda var, mutator: self._moved.get(var, var)),
            (tirx.Cast, self._cast),
            (_OPERATIONS, self._operation),
            (tirx.Let, self._let),
            (Call, self._call),
        ]
        return mutate(value, rules)

    def _cast(self, cast: tirx.Cast, mutator: StructuralMutator) -> Expr:
        value = mutator.mutate(cast.value)
        return _wide(_narrow(value)) if _is_narrow(cast) else tirx.Cast(cast.ty.dtype, value)

    def _operation(self, found: Expr, mutator: StructuralMutator) -> Expr:
        result = type(found)(*(mutator.mutate(getattr(found, name)) for name in _FIELDS.get(type(found), ("a", "b"))))
        return _wide(_narrow(result)) if _is_narrow(found) and isinstance(found, _ROUNDED) else result

    def _let(self, let: tirx.Let, mutator: StructuralMutator) -> Expr:
        value, var = mutator.mutate(let.value), let.var
        if _is_narrow(var):
            var = tirx.Var(var.name, value.ty)
            self._moved[let.var] = var
        return tirx.Let(var, value, mutator.mutate(let.body))

    def _call(self, call: Call, mutator: StructuralMutator) -> Expr:
        if not any(map(_is_narrow, (call, *call.args))):
            return mutator.default_mutate(call)
        arguments = [mutator.mutate(argument) for argument in call.args]
        if not _is_narrow(call):  # its bits
            return Call(call.op, [_cut(argument) for argument in arguments], ret_ty=call.ty)
        return tirx.call_intrin("float32" + lanes_of(call), call.op, *arguments)
