"""Quotients and remainders of integers that no operand makes the processor trap on.

A divisor of zero is an error of the run, which a check before the kernel raises; here it is divided by 1 all the same,
as vectors have lanes that nobody reads. The lowest integer divided by -1 is itself, as in ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax, te, tirx, topi
from tvm.ir import GenericConst

from backends.tensorir.legalize.common import Expr, FLegalize

Divide = Callable[[Expr, Expr], Expr]


def _quotient(divide: Divide) -> Divide:
    def safe(a: Expr, b: Expr) -> Expr:
        found = divide(a, _divisor(b))
        return tirx.Select(b == _of(b, -1), _of(a, 0) - a, found) if _is_signed(b) else found

    return safe


def _remainder(divide: Divide) -> Divide:
    """Whatever is divided by 1, as is done for -1, leaves 0."""
    return lambda a, b: divide(a, _divisor(b))


def _divisor(b: Expr) -> Expr:
    traps = tirx.any(b == _of(b, 0), b == _of(b, -1)) if _is_signed(b) else b == _of(b, 0)
    return tirx.Select(traps, _of(b, 1), b)


def _is_signed(b: Expr) -> bool:
    return str(b.ty.dtype).startswith("int")


def _of(like: Expr, value: int) -> Expr:
    return tirx.const(value, like.ty.dtype)


def _legalize(
    name: str, default: Callable[[te.Tensor, te.Tensor], te.Tensor], safe: Divide, *, by_literal: bool = False
) -> FLegalize:
    """Return a legalization. Kernels have a divisor that is one known integer in their code, which LLVM multiplies by;
    with `by_literal` one that is a float, too."""

    def divided(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        shape = topi.add(a, b).shape
        wide_a, wide_b = topi.broadcast_to(a, shape), topi.broadcast_to(b, shape)
        return te.compute(shape, lambda *i: safe(wide_a(*i), wide_b(*i)), f"T_{name}")

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        dividend, divisor = call.args
        is_integer = "int" in str(call.ty.dtype)
        if is_integer and not _is_harmless(divisor):
            return builder.call_te(divided, dividend, divisor, primfunc_name_hint=name)
        known = _literal(divisor) if is_integer or by_literal else divisor
        return builder.call_te(default, dividend, known, primfunc_name_hint=name)

    return legalize


def _literal(divisor: relax.Expr) -> Expr:
    """Return what is one known number as that, and all else as it is."""
    is_number = isinstance(divisor, GenericConst) and not divisor.ty.shape
    return tirx.const(divisor.value.numpy().item(), str(divisor.ty.dtype.dtype)) if is_number else divisor


def _is_harmless(divisor: relax.Expr) -> bool:
    """Return whether the divisors are known, and none of them traps."""
    return isinstance(divisor, GenericConst) and not {0, -1} & set(divisor.value.numpy().reshape(-1).tolist())


DIVISIONS: dict[str, FLegalize] = {
    "relax.divide": _legalize("divide", topi.divide, _quotient(tirx.truncdiv)),
    "relax.floor_divide": _legalize("floor_divide", topi.floor_divide, _quotient(tirx.floordiv)),
    "relax.mod": _legalize("mod", topi.mod, _remainder(tirx.truncmod), by_literal=True),
    "relax.floor_mod": _legalize("floor_mod", topi.floor_mod, _remainder(tirx.floormod)),
}
