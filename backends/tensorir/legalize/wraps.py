"""Sums, differences and products of integers that leave their type: what is left modulo it, as NumPy and ONNX Runtime.

TVM takes it that those of 32 and 64 bits never leave it, and tells LLVM so, whence `x * 6 / 3` is `x * 2` and
`0 - x` of uint32 anything; of a difference of unsigned numbers below a 0 it ends the process. So they are computed in a
signed type that they do not leave, which LLVM makes instructions of the narrow type of, but without its assumption:

    x * y    ->    int32(int128(x) * int128(y))

An unsigned operand is the signed one of the same bits: products of two uint64 would leave int128.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence

import tvm
import tvm_ffi
from tvm import relax, te, tirx, topi
from tvm.ir import GenericConst

from backends.tensorir.legalize.common import Expr, FLegalize

_SIGNED = {"int32": "int32", "int64": "int64"} | {f"uint{bits}": f"int{bits}" for bits in (8, 16, 32, 64)}
"""Types of which TVM or LLVM assume something, and the signed ones of the same bits."""


def _legalize(name: str, combine: Callable[..., Expr]) -> FLegalize:
    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        dtype = str(call.ty.dtype.dtype)
        if dtype not in _SIGNED:
            return tvm.ir.Op.get(f"relax.{name}").get_attr("FLegalize")(builder, call)

        def compute(*operands: te.Tensor | Expr) -> te.Tensor:
            tensors = [operand for operand in operands if isinstance(operand, te.Tensor)]
            shape = functools.reduce(topi.add, tensors).shape
            reads = [_reader(operand, shape) for operand in operands]
            return te.compute(shape, lambda *at: tirx.Cast(dtype, combine(*(read(at) for read in reads))), f"T_{name}")

        return builder.call_te(compute, *_numbers(call), primfunc_name_hint=name)

    return legalize


def _numbers(call: relax.Call) -> list[relax.Expr | Expr]:
    """Return the operands, of two the last that is one known number as that."""
    known = [at for at, each in enumerate(call.args) if isinstance(each, GenericConst) and not each.ty.shape][-1:]
    return [_literal(each) if at in known and len(call.args) > 1 else each for at, each in enumerate(call.args)]


def _literal(constant: GenericConst) -> Expr:
    value = constant.value.numpy()
    return tirx.IntImm(_wide(str(value.dtype)), value.view(_SIGNED[str(value.dtype)]).item())


def _reader(operand: te.Tensor | Expr, shape: Sequence[Expr]) -> Callable[[Sequence[Expr]], Expr]:
    """Return the function from a place of the result to the element there, in the wide type."""
    if not isinstance(operand, te.Tensor):
        return lambda _: operand
    dtype = str(operand.dtype)
    spread = operand if tvm_ffi.structural_equal(operand.shape, shape) else topi.broadcast_to(operand, shape)
    if dtype == _SIGNED[dtype]:
        return lambda at: tirx.Cast(_wide(dtype), spread(*at))
    return lambda at: tirx.Cast(_wide(dtype), tirx.Cast(_SIGNED[dtype], spread(*at)))


def _wide(dtype: str) -> str:
    return "int32" if dtype in ("uint8", "uint16") else "int128"


WRAPS: dict[str, FLegalize] = {
    "relax.add": _legalize("add", operator.add),
    "relax.subtract": _legalize("subtract", operator.sub),
    "relax.multiply": _legalize("multiply", operator.mul),
    "relax.square": _legalize("square", lambda x: x * x),
    "relax.negative": _legalize("negative", operator.neg),
}
