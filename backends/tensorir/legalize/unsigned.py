"""Comparisons of unsigned numbers with a constant 0, which the type answers. As a condition TVM subtracts 1 of the 0,
refuses to, and ends the process where it is told so."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax, te, topi
from tvm.ir import GenericConst

from backends.tensorir.legalize.common import FLegalize


def _legalize(name: str, zero: int, result: bool) -> FLegalize:
    """Return the legalization of a comparison that is `result` where the operand at `zero` is 0."""
    compare: Callable[[te.Tensor, te.Tensor], te.Tensor] = getattr(topi, name)

    def known(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        return topi.full(compare(a, b).shape, "bool", result)

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        operand = call.args[zero]
        is_known = str(operand.ty.dtype).startswith("uint") and isinstance(operand, GenericConst)
        if is_known and not operand.value.numpy().any():
            return builder.call_te(known, *call.args, primfunc_name_hint=name)
        return tvm.ir.Op.get(f"relax.{name}").get_attr("FLegalize")(builder, call)

    return legalize


UNSIGNED: dict[str, FLegalize] = {
    "relax.less": _legalize("less", 1, False),
    "relax.greater_equal": _legalize("greater_equal", 1, True),
    "relax.greater": _legalize("greater", 0, False),
    "relax.less_equal": _legalize("less_equal", 0, True),
}
