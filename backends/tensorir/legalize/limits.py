"""relu, clip, maximum and minimum with the constant first: LLVM makes `max(c, x)` the one instruction whose result is
NaN where x is, as ONNX Runtime and PyTorch have it; `max(x, c)` is c there."""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax, te, tirx, topi
from tvm.ir import GenericConst

from backends.tensorir.legalize.common import Expr, FLegalize, number
from fusion.bindings import data_of


def _relu(x: te.Tensor) -> te.Tensor:
    zero = tirx.const(0, x.dtype)
    return te.compute(x.shape, lambda *i: tirx.max(zero, x(*i)), "relu")


def _clip(x: te.Tensor, low: Expr, high: Expr) -> te.Tensor:
    lowest, highest = (number(bound.value, x.dtype) for bound in (low, high))
    return te.compute(x.shape, lambda *i: tirx.max(lowest, tirx.min(highest, x(*i))), "clip")


def _legalize_relu(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    return builder.call_te(_relu, data_of(call), primfunc_name_hint="relu")


def _legalize_clip(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    return builder.call_te(_clip, *call.args, primfunc_name_hint="clip")


def _constant_first(compute: Callable[[te.Tensor, te.Tensor], te.Tensor], name: str) -> FLegalize:
    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        first, second = call.args
        operands = (second, first) if isinstance(second, GenericConst) else (first, second)
        return builder.call_te(compute, *operands, primfunc_name_hint=name)

    return legalize


def _isfinite(x: te.Tensor) -> te.Tensor:
    """Whether an element is between the infinities, which NaN is not; TVM's own form compares bools as floats."""
    low, high = (tirx.const(sign, x.dtype) for sign in (float("-inf"), float("inf")))
    return te.compute(x.shape, lambda *i: tirx.And(low < x(*i), x(*i) < high), "isfinite")


def _legalize_isfinite(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    return builder.call_te(_isfinite, data_of(call), primfunc_name_hint="isfinite")


LIMITS: dict[str, FLegalize] = {
    "relax.nn.relu": _legalize_relu,
    "relax.clip": _legalize_clip,
    "relax.isfinite": _legalize_isfinite,
    "relax.maximum": _constant_first(topi.maximum, "maximum"),
    "relax.minimum": _constant_first(topi.minimum, "minimum"),
}
