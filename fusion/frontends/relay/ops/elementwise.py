"""Functions of single elements, with numpy's broadcasting."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tvm import relax
from tvm.relax import Expr

from fusion.declined import Declined
from fusion.frontends.relay.call import Call
from fusion.frontends.relay.ops.dtypes import filled, is_float
from fusion.frontends.relay.registry import translates
from fusion.frontends.relay.rounding import round_half_away

Unary = Callable[[Expr], Expr]
Binary = Callable[[Expr, Expr], Expr]

_FLOAT_FUNCTIONS: dict[str, Unary] = {
    "acos": relax.op.acos,
    "acosh": relax.op.acosh,
    "asin": relax.op.asin,
    "asinh": relax.op.asinh,
    "atan": relax.op.atan,
    "atanh": relax.op.atanh,
    "cos": relax.op.cos,
    "erf": relax.op.erf,
    "exp": relax.op.exp,
    "fast_erf": relax.op.erf,
    "fast_exp": relax.op.exp,
    "fast_tanh": relax.op.tanh,
    "log": relax.op.log,
    "rsqrt": relax.op.rsqrt,
    "sigmoid": relax.op.sigmoid,
    "sin": relax.op.sin,
    "sqrt": relax.op.sqrt,
    "tan": relax.op.tan,
    "tanh": relax.op.tanh,
}
_ROUNDINGS: dict[str, Unary] = {"ceil": relax.op.ceil, "floor": relax.op.floor, "trunc": relax.op.trunc}
_TESTS: dict[str, tuple[Unary, bool]] = {
    "isfinite": (relax.op.isfinite, True),
    "isinf": (relax.op.isinf, False),
    "isnan": (relax.op.isnan, False),
}
"""With what the test says of every integer."""

_BINARY: dict[str, Binary] = {
    "add": relax.op.add,
    "maximum": relax.op.maximum,
    "minimum": relax.op.minimum,
    "multiply": relax.op.multiply,
    "subtract": relax.op.subtract,
    "equal": relax.op.equal,
    "not_equal": relax.op.not_equal,
    "less": relax.op.less,
    "less_equal": relax.op.less_equal,
    "greater": relax.op.greater,
    "greater_equal": relax.op.greater_equal,
}
_INTEGER_ONLY: dict[str, Binary] = {
    "bitwise_and": relax.op.bitwise_and,
    "bitwise_or": relax.op.bitwise_or,
    "bitwise_xor": relax.op.bitwise_xor,
    "left_shift": relax.op.left_shift,
    "right_shift": relax.op.right_shift,
}
_LOGICAL: dict[str, Binary] = {
    "logical_and": relax.op.logical_and,
    "logical_or": relax.op.logical_or,
    "logical_xor": relax.op.logical_xor,
}


@translates(*_FLOAT_FUNCTIONS)
def float_function(call: Call) -> Expr:
    """The fast variants are approximations of these; the exact ones are within their tolerance."""
    _need_float(call)
    return _FLOAT_FUNCTIONS[call.operator](call.x(0))


@translates("log2", "log10")
def log_to_base(call: Call) -> Expr:
    _need_float(call)
    return relax.op.divide(relax.op.log(call.x(0)), call.like(math.log(int(call.operator[3:]))))


@translates("cosh")
def cosh(call: Call) -> Expr:
    """(e^x + e^-x) / 2; not every backend lowers TVM's own."""
    _need_float(call)
    both = relax.op.add(relax.op.exp(call.x(0)), relax.op.exp(relax.op.negative(call.x(0))))
    return relax.op.multiply(both, call.like(0.5))


@translates("sinh")
def sinh(call: Call) -> Expr:
    """(e^x - e^-x) / 2, and near zero, where that cancels, the series to x^7: 2e-8 off at |x| = 0.5."""
    _need_float(call)
    x = call.x(0)
    square = call.emit(relax.op.multiply(x, x))
    series = call.like(1.0)
    for divisor in (42.0, 20.0, 6.0):
        term = relax.op.multiply(relax.op.multiply(square, call.like(1.0 / divisor)), series)
        series = relax.op.add(call.like(1.0), term)
    far = relax.op.subtract(relax.op.exp(x), relax.op.exp(relax.op.negative(x)))
    near = relax.op.less(square, call.like(0.25))
    return relax.op.where(near, relax.op.multiply(x, series), relax.op.multiply(far, call.like(0.5)))


def _need_float(call: Call) -> None:
    if not is_float(call.dtype(0)):
        raise Declined(f"{call.operator} of {call.dtype(0)}")


@translates("ceil", "floor", "trunc")
def rounding(call: Call) -> Expr:
    return _ROUNDINGS[call.operator](call.x(0)) if is_float(call.dtype(0)) else call.x(0)


@translates("round")
def round_(call: Call) -> Expr:
    """To the nearest integer, and from the middle between two away from zero, as LLVM's `round`."""
    return round_half_away(call, call.x(0)) if is_float(call.dtype(0)) else call.x(0)


@translates("abs")
def absolute(call: Call) -> Expr:
    return call.x(0) if call.dtype(0).startswith("uint") else relax.op.abs(call.x(0))


@translates("sign")
def sign(call: Call) -> Expr:
    if call.dtype(0).startswith("uint"):
        return relax.op.minimum(call.x(0), call.like(1))
    return relax.op.sign(call.x(0))


@translates("negative")
def negative(call: Call) -> Expr:
    return relax.op.negative(call.x(0))


@translates(*_TESTS)
def test(call: Call) -> Expr:
    function, of_integers = _TESTS[call.operator]
    return function(call.x(0)) if is_float(call.dtype(0)) else filled(call.shape(0), of_integers, "bool")


@translates("logical_not")
def logical_not(call: Call) -> Expr:
    if call.dtype(0) != "bool":
        raise Declined(f"logical_not of {call.dtype(0)}")
    return relax.op.logical_not(call.x(0))


@translates("bitwise_not")
def bitwise_not(call: Call) -> Expr:
    if is_float(call.dtype(0)):
        raise Declined(f"bitwise_not of {call.dtype(0)}")
    return relax.op.logical_not(call.x(0)) if call.dtype(0) == "bool" else relax.op.bitwise_not(call.x(0))


@translates(*_BINARY)
def binary(call: Call) -> Expr:
    _common_dtype(call)
    return _BINARY[call.operator](call.x(0), call.x(1))


@translates(*_INTEGER_ONLY)
def integer_binary(call: Call) -> Expr:
    dtype = _common_dtype(call)
    if is_float(dtype):
        raise Declined(f"{call.operator} of {dtype}")
    logical = _LOGICAL.get(call.operator.replace("bitwise", "logical")) if dtype == "bool" else None
    return (logical or _INTEGER_ONLY[call.operator])(call.x(0), call.x(1))


@translates(*_LOGICAL)
def logical(call: Call) -> Expr:
    if _common_dtype(call) != "bool":
        raise Declined(f"{call.operator} of {call.dtype(0)}")
    return _LOGICAL[call.operator](call.x(0), call.x(1))


@translates("divide", "trunc_divide")
def divide(call: Call) -> Expr:
    """The quotient; that of integers is rounded toward zero."""
    quotient = relax.op.divide(call.x(0), call.x(1))
    truncate = call.operator == "trunc_divide" and is_float(_common_dtype(call))
    return relax.op.trunc(quotient) if truncate else quotient


@translates("floor_divide")
def floor_divide(call: Call) -> Expr:
    if is_float(_common_dtype(call)):
        return relax.op.floor(relax.op.divide(call.x(0), call.x(1)))
    return relax.op.floor_divide(call.x(0), call.x(1))


@translates("mod", "trunc_mod")
def truncated_remainder(call: Call) -> Expr:
    """What a quotient rounded toward zero leaves: it has the sign of the dividend."""
    _common_dtype(call)
    return relax.op.mod(call.x(0), call.x(1))


@translates("floor_mod")
def floored_remainder(call: Call) -> Expr:
    """What a quotient rounded down leaves: it has the sign of the divisor."""
    if not is_float(_common_dtype(call)):
        return relax.op.floor_mod(call.x(0), call.x(1))
    quotient = relax.op.floor(relax.op.divide(call.x(0), call.x(1)))
    return relax.op.subtract(call.x(0), relax.op.multiply(quotient, call.x(1)))


@translates("power")
def power(call: Call) -> Expr:
    """x ** y; that of integers goes through float64, which is exact up to 2 ** 53."""
    dtype = _common_dtype(call)
    if is_float(dtype):
        return relax.op.power(call.x(0), call.x(1))
    wide = [relax.op.astype(call.x(index), "float64") for index in (0, 1)]
    return relax.op.astype(relax.op.power(*wide), dtype)


def _common_dtype(call: Call) -> str:
    if call.dtype(0) != call.dtype(1):
        raise Declined(f"{call.operator} of {call.dtype(0)} and {call.dtype(1)}")
    return call.dtype(0)


@translates("clip")
def clip(call: Call) -> Expr:
    """min(max(x, a_min), a_max), the bounds in the dtype of x."""
    dtype = call.dtype(0)
    low, high = call.number("a_min", -math.inf), call.number("a_max", math.inf)
    if is_float(dtype) and low <= high:
        return relax.op.clip(call.x(0), low, high)
    if not is_float(dtype):
        limits = np.iinfo(dtype)
        low, high = (float(np.clip(bound, limits.min, limits.max)) for bound in (low, high))
    return relax.op.maximum(relax.op.minimum(call.x(0), call.like(high)), call.like(low))
