"""What TVM's passes for bfloat16 pass over: `BF16ComputeLegalize` does not look into a `Let`, and `BF16StorageLegalize`
leaves the dtype of a broadcast as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import PrimType, TensorLoad
from tvm_ffi.structural import StructuralMutator, structural_walk

from backends.cpu.rewriting import Rule, mutate

Expr = Any
_OPERATIONS = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Max, tirx.Min)
_COMPARISONS = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)


def compute_in_lets() -> tvm.transform.Pass:
    """`T.Let(v, where={v: T.Cast("float32", x)})`  ->  `T.Let(v, where={v: T.reinterpret("float32", bits << 16)})`"""
    return _pass(tirx.Let, _holds_narrow, lambda let, mutator: mutate(let, _IN_FLOAT32), "compute_in_lets")


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
        found: list[Expr] = []
        structural_walk(func.body, (kind, lambda node: found.append(node) if concerns(node) else None))
        return func.with_body(mutate(func.body, [(kind, rule)])) if found else func

    return tirx.transform.prim_func_pass(rewrite, opt_level=0, name=name)


def _is_narrow(expr: Expr) -> bool:
    return isinstance(expr.ty, PrimType) and str(expr.ty.dtype).startswith("bfloat16")


def _holds_narrow(let: tirx.Let) -> bool:
    found: list[Expr] = []
    leaves = (TensorLoad, tirx.Cast, tirx.Var, tirx.FloatImm)
    structural_walk(let, (leaves, lambda leaf: found.append(leaf) if _is_narrow(leaf) else None))
    return bool(found)


def _bits(value: Expr) -> Expr:
    return tirx.reinterpret("uint16" + _lanes(value), value)


def _lanes(value: Expr) -> str:
    """Return what follows the dtype of one lane."""
    return "".join(str(value.ty.dtype).partition("x")[1:])


def _wide(value: Expr) -> Expr:
    """Return a value of bfloat16 as float32, others as they are."""
    if not _is_narrow(value):
        return value
    high = tirx.shift_left(_bits(value).astype("uint32" + _lanes(value)), tirx.const(16, "uint32"))
    return tirx.reinterpret("float32" + _lanes(value), high)


def _narrow(value: Expr) -> Expr:
    """Return a value as bfloat16, the nearest and ties to even."""
    value, lanes = value.astype("float32" + _lanes(value)), _lanes(value)
    half, one, width = (tirx.const(number, "uint32") for number in (0x7FFF, 1, 16))
    bits = tirx.reinterpret("uint32" + lanes, value)
    odd = tirx.bitwise_and(tirx.shift_right(bits, width), one)
    return tirx.reinterpret("bfloat16" + lanes, tirx.shift_right(bits + half + odd, width).astype("uint16" + lanes))


def _cast(cast: tirx.Cast, mutator: StructuralMutator) -> Expr:
    value = _wide(mutator.mutate(cast.value))
    return _narrow(value) if _is_narrow(cast) else tirx.Cast(cast.ty.dtype, value)


def _operation(found: Expr, mutator: StructuralMutator) -> Expr:
    result = type(found)(_wide(mutator.mutate(found.a)), _wide(mutator.mutate(found.b)))
    return _narrow(result) if _is_narrow(found) else result


_IN_FLOAT32: list[tuple[Any, Rule]] = [(tirx.Cast, _cast), (_OPERATIONS + _COMPARISONS, _operation)]
