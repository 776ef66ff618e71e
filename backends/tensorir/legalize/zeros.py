"""Products with and quotients of a constant 0, which TVM takes for 0 whatever the other operand is: times NaN or an
infinity it is NaN, times a negative number -0. It refuses to divide by what it took for 0.

    x * 0.0    ->    (x * -1.0) * reinterpret(float32, 0x80000000)

TVM does not look into the bits of a number, and LLVM keeps the rules of floats; it refuses those of +0.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np
from tvm import relax, te, tirx, topi
from tvm.ir import GenericConst

from backends.tensorir.legalize.common import Expr, FLegalize, is_float
from backends.tensorir.legalize.divisions import DIVISIONS
from backends.tensorir.legalize.wraps import WRAPS

_NEGATIVE_ZERO = {
    "float16": (1 << 15, "uint16"),
    "bfloat16": (1 << 15, "uint16"),
    "float32": (1 << 31, "uint32"),
    "float64": (1 << 63, "uint64"),
}
"""The bits of -0."""


def _legalize(name: str, combine: Callable[[Expr, Expr], Expr], otherwise: FLegalize) -> FLegalize:
    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        first, second = call.args
        if not is_float(call.ty.dtype.dtype) or _is_zero(first) == _is_zero(second):
            return otherwise(builder, call)
        tensor, zero = (second, first) if _is_zero(first) else (first, second)
        sign = 1.0 if np.signbit(zero.value.numpy()).all() else -1.0
        dtype = str(call.ty.dtype.dtype)
        hidden = negative_zero(dtype)

        def element(value: Expr) -> Expr:
            signed = value * tirx.const(sign, dtype)
            return combine(hidden, signed) if zero is first else combine(signed, hidden)

        def compute(x: te.Tensor) -> te.Tensor:
            wide = topi.broadcast_to(x, call.ty.shape.values)
            return te.compute(wide.shape, lambda *at: element(wide(*at)), f"T_{name}")

        return builder.call_te(compute, tensor, primfunc_name_hint=name)

    return legalize


def negative_zero(dtype: str) -> Expr:
    """Return -0 as TVM does not know it."""
    return tirx.reinterpret(dtype, tirx.const(*_NEGATIVE_ZERO[dtype]))


def _is_zero(operand: relax.Expr) -> bool:
    """Return whether an operand is one number, which is 0; forms of TVM put such constants in their place."""
    values = operand.value.numpy() if isinstance(operand, GenericConst) else None
    return values is not None and values.size == 1 and not values.any()


ZEROS: dict[str, FLegalize] = {
    "relax.multiply": _legalize("multiply", operator.mul, WRAPS["relax.multiply"]),
    "relax.divide": _legalize("divide", operator.truediv, DIVISIONS["relax.divide"]),
}
