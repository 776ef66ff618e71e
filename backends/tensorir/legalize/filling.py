"""Tensors of one value: TVM's own form takes no infinity and no NaN."""

from __future__ import annotations

import tvm
from tvm import relax, topi
from tvm.ir import GenericConst

from backends.tensorir.legalize.common import FLegalize


def _filled(operator: str) -> FLegalize:
    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        shape, (_, value, *_) = call.ty.shape, call.args
        if not isinstance(value, GenericConst) or not isinstance(shape, relax.ShapeExpr):
            return tvm.ir.Op.get(operator).get_attr("FLegalize")(builder, call)
        dtype = str(call.ty.dtype.dtype)
        number = value.value.numpy().item()
        return builder.call_te(topi.full, shape.values, dtype, number, primfunc_name_hint="full")

    return legalize


FILLING: dict[str, FLegalize] = {name: _filled(name) for name in ("relax.full", "relax.full_like")}
