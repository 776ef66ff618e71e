"""Integers as bools: whether they are other than 0. TVM's own cast raises where one turns out to be a constant that is
neither 0 nor 1, such as the greatest of no numbers."""

from __future__ import annotations

import tvm
from tvm import relax, te, tirx

from backends.tensorir.legalize.common import FLegalize


def _is_not_zero(x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda *i: tirx.NE(x(*i), tirx.const(0, x.dtype)), "compute")


def _legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    (x,) = call.args
    if str(call.ty.dtype) == "bool" and "int" in str(x.ty.dtype):
        return builder.call_te(_is_not_zero, x, primfunc_name_hint="cast")
    return tvm.ir.Op.get("relax.astype").get_attr("FLegalize")(builder, call)


CASTS: dict[str, FLegalize] = {"relax.astype": _legalize}
