"""Changes of dtype, choices between tensors, and what only the shape and dtype of a tensor tell."""

from __future__ import annotations

import math

import numpy as np
import tvm
from tvm import relax, te
from tvm.relax import Expr

from fusion.constants import constant
from fusion.declined import Declined
from fusion.frontends.relay.call import Call, dtype_of, scalar
from fusion.frontends.relay.registry import translates


def is_float(dtype: str) -> bool:
    """Return whether `dtype` is a floating one."""
    return dtype.startswith(("float", "bfloat"))


@translates("cast")
def cast(call: Call) -> Expr:
    return as_dtype(call.x(0), call.dtype_attribute("dtype", call.dtype(0)))


@translates("cast_like")
def cast_like(call: Call) -> Expr:
    return as_dtype(call.x(0), call.dtype(1))


def as_dtype(x: Expr, dtype: str) -> Expr:
    """Return `x`, which is bound, as `dtype`: floats are rounded toward zero, and what is not zero is true."""
    source = dtype_of(x)
    if source == dtype:
        return x
    if dtype == "bool":
        return relax.op.not_equal(x, scalar(0, source))
    if "bfloat16" in (source, dtype) and "float32" not in (source, dtype):
        return relax.op.astype(relax.op.astype(x, "float32"), dtype)
    return relax.op.astype(x, dtype)


@translates("reinterpret")
def reinterpret(call: Call) -> Expr:
    """The same bits as another dtype of the same width."""
    target = call.dtype_attribute("dtype", call.dtype(0))
    if "bool" in (target, call.dtype(0)) or np.dtype(target).itemsize != np.dtype(call.dtype(0)).itemsize:
        raise Declined(f"the bits of {call.dtype(0)} as {target}")

    def bits(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *index: tvm.tirx.reinterpret(target, x(*index)), name="reinterpret")

    return call.x(0) if target == call.dtype(0) else call.builder.call_te(bits, call.x(0))


@translates("where")
def where(call: Call) -> Expr:
    if call.dtype(1) != call.dtype(2):
        raise Declined(f"where of {call.dtype(1)} and {call.dtype(2)}")
    return relax.op.where(as_dtype(call.x(0), "bool"), call.x(1), call.x(2))


@translates("copy")
def copy(call: Call) -> Expr:
    return call.x(0)


@translates("zeros_like", "ones_like")
def constant_like(call: Call) -> Expr:
    return filled(call.shape(0), int(call.operator == "ones_like"), call.dtype(0))


def filled(shape: tuple[int, ...], value: float, dtype: str) -> Expr:
    """Return a tensor of `shape` whose elements are all `value`."""
    return relax.op.full(shape, scalar(value, dtype), dtype)


@translates("shape_of")
def shape_of(call: Call) -> Expr:
    return constant(np.array(call.shape(0), call.dtype_attribute("dtype", "int32")))


@translates("ndarray_size")
def ndarray_size(call: Call) -> Expr:
    return scalar(math.prod(call.shape(0)), call.dtype_attribute("dtype", "int32"))
