"""What TVM or LLVM compute otherwise than the graph says, as expressions that both leave alone.

Floats that are NaN: TVM makes `max(a, b)` b where either is, writes `not a < b` as `b <= a`, compares `a != b` as
ordered, and takes `a == a` for true. Numbers out of range: LLVM may make anything of a float that does not fit the
integer, and does so where it is converted back. Rounding to bfloat16: TVM computes that in float32, and drops two casts
in a row. Comparisons of bools: LLVM refuses them as TVM writes them. Functions of float16: TVM lowers only some.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.ir import Call, Op, PrimType, TensorLoad
from tvm_ffi import StructuralKey

from fusion.structural import contains

Expr = Any
Bind = Callable[[Expr], Expr]
"""Returns a cheap expression that stands for the given one."""
Signed = Callable[[Expr, str, str], Expr]
"""Returns a float as an integer of a type, and of so many lanes."""

_COMPARISONS = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)
REWRITTEN = (tirx.Max, tirx.Min, tirx.Not, tirx.Cast, *_COMPARISONS)
"""Types of the nodes that `exact` rewrites some of."""

_FUNCTIONS = frozenset(
    ("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "erf", "exp", "exp2", "exp10", "hypot", "log",
     "log10", "log1p", "log2", "pow", "sigmoid", "sin", "sqrt", "rsqrt", "tan", "tanh")
)  # fmt: skip


def is_inexact(node: Any) -> bool:
    """Return whether `exact` rewrites this node, of one of the types in `REWRITTEN`."""
    if isinstance(node, tirx.Max | tirx.Min):
        return _is_float(node.a) and not _is_number(node.a)
    if isinstance(node, tirx.Not):
        return _compares_floats(node.a)
    if isinstance(node, tirx.Cast):
        return _is_float(node.value) and (_is_integer(node) or _is_rounded_in_between(node))
    if _is_float(node.a):
        return isinstance(node, tirx.NE) or (not isinstance(node, tirx.LT | tirx.GT) and _same(node))
    return _kind(node.a) == "bool"


def exact(node: Any, bind: Bind, signed: Signed | None = None) -> Expr:
    """Return an inexact node as what the graph means.

    Args:
        signed: Makes int32 or int64, the lowest one where it fits none, of a float, in place of comparisons.
    """
    if isinstance(node, tirx.Max | tirx.Min):
        return _limit(node, bind)
    if isinstance(node, tirx.Not):
        return _negated(node.a)
    if isinstance(node, tirx.Cast):
        return _to_integer(node, bind, signed or _signed) if _is_integer(node) else _rounded(node, bind)
    if _is_float(node.a):
        return _compared(node)
    return type(node)(node.a.astype("int8"), node.b.astype("int8"))


def is_narrow_function(call: Call) -> bool:
    """Return whether a call is a function of float16 or bfloat16."""
    if not isinstance(call.op, Op) or not isinstance(call.ty, PrimType):
        return False
    narrow = str(call.ty.dtype).startswith(("float16", "bfloat16"))
    return narrow and str(call.op.name).rpartition(".")[2] in _FUNCTIONS


def widened(call: Call) -> Call:
    """Return a narrow function in float32."""
    dtype = "float32" + lanes_of(call)
    return tirx.call_intrin(dtype, call.op, *(argument.astype(dtype) for argument in call.args))


def _limit(limit: Any, bind: Bind) -> Expr:
    """`max(a, b)`  ->  `Select(b <= inf, max(b, a), b)`; `max(a, number)`  ->  `max(number, a)`.

    The instruction returns its second operand where either is NaN: with the constant first it is enough, and where a
    reduction is, the test of what is new does not wait for what there is.
    """
    if _is_number(limit.b):
        return type(limit)(limit.b, limit.a)
    second = _cheap(limit.b, bind)
    infinity = tirx.const(float("inf"), _kind(second))
    return tirx.Select(second <= infinity, type(limit)(second, limit.a), second)


def _compared(comparison: Any) -> Expr:
    """`a != b`  ->  `not a == b`; `a == a`, which TVM takes for true  ->  `a <= inf`."""
    first, second = comparison.a, comparison.b
    equal = first <= tirx.const(float("inf"), _kind(first)) if _same(comparison) else tirx.EQ(first, second)
    return _negated(equal) if isinstance(comparison, tirx.NE) else equal


def _same(comparison: Any) -> bool:
    return bool(StructuralKey(comparison.a) == StructuralKey(comparison.b))


def _negated(condition: Expr) -> Expr:
    """`not c`  ->  `Select(c, False, True)`, which TVM does not move into the comparison."""
    no, yes = (tirx.const(value, "bool") for value in (False, True))
    return tirx.Select(condition, no, yes)


def _to_integer(cast: tirx.Cast, bind: Bind, signed: Signed) -> Expr:
    """Return the integer that x86 makes of a float: the lowest one where it fits none, cut off for narrow types."""
    target, lanes = _kind(cast), lanes_of(cast)
    value = cast.value if _kind(cast.value) in ("float32", "float64") else cast.value.astype("float32" + lanes)
    value = _cheap(value, bind)
    wide = "int32" if target in ("int8", "int16", "int32", "uint8", "uint16") else "int64"
    if target != "uint64":
        return signed(value, wide, lanes).astype(target + lanes)
    half = tirx.const(2.0**63, _kind(value))
    above = signed(value - half, wide, lanes).astype(target + lanes) + tirx.const(1 << 63, target)
    return tirx.Select(value >= half, above, signed(value, wide, lanes).astype(target + lanes))


def _signed(value: Expr, dtype: str, lanes: str) -> Expr:
    end = tirx.const(2.0 ** (31 if dtype == "int32" else 63), _kind(value))
    fits = tirx.And(value >= -end, value < end)
    return tirx.Select(fits, tirx.Cast(dtype + lanes, value), tirx.min_value(dtype))


def _is_rounded_in_between(cast: tirx.Cast) -> bool:
    return _kind(cast) == "bfloat16" and _kind(cast.value) == "float32"


def _rounded(cast: tirx.Cast, bind: Bind) -> Expr:
    """Return a float32 rounded to bfloat16, to the nearest and ties to even, before the cast that TVM may drop."""
    lanes = lanes_of(cast)
    value = _cheap(cast.value, bind)
    bits = tirx.reinterpret("uint32" + lanes, value)
    one, half, mask = (tirx.const(number, "uint32") for number in (1, 0x7FFF, 0xFFFF0000))
    odd = tirx.bitwise_and(tirx.shift_right(bits, tirx.const(16, "uint32")), one)
    near = tirx.reinterpret("float32" + lanes, tirx.bitwise_and(bits + half + odd, mask))
    number = value <= tirx.const(float("inf"), "float32")
    return tirx.Cast("bfloat16" + lanes, tirx.Select(number, near, value))


def _cheap(value: Expr, bind: Bind) -> Expr:
    return value if isinstance(value, TensorLoad | tirx.Var | tirx.Shuffle) else bind(value)


def _kind(value: Expr) -> str:
    """Return the dtype of one lane."""
    return str(value.ty.dtype).partition("x")[0]


def lanes_of(value: Expr) -> str:
    """Return what follows the dtype of one lane: "x16" of float32x16, "" of float32."""
    return "".join(str(value.ty.dtype).partition("x")[1:])


def _is_float(value: Expr) -> bool:
    return isinstance(value.ty, PrimType) and _kind(value).startswith(("float", "bfloat"))


def _is_integer(value: Expr) -> bool:
    return _kind(value).startswith(("int", "uint"))


def _is_number(value: Expr) -> bool:
    return isinstance(value.value if isinstance(value, tirx.Broadcast) else value, tirx.FloatImm)


def _compares_floats(condition: Expr) -> bool:
    return contains(condition, (_COMPARISONS, lambda node: _is_float(node.a)))
