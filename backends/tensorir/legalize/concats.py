"""A concatenation says along which axis, so that what makes its parts may write them in place."""

from __future__ import annotations

from tvm import relax, topi

from backends.tensorir.legalize.common import FLegalize
from partition.slices import CONCAT


def _concat(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """`concat`: TVM's default, with the axis as an attribute of the PrimFunc."""
    (tensors,) = call.args
    while isinstance(tensors, relax.Var) and isinstance(builder.lookup_binding(tensors), relax.Tuple | relax.Var):
        tensors = builder.lookup_binding(tensors)
    count = len(tensors.ty.fields)
    parts = [
        tensors.fields[index] if isinstance(tensors, relax.Tuple) else builder.emit(relax.TupleGetItem(tensors, index))
        for index in range(count)
    ]
    axis = 0 if call.attrs.axis is None else int(call.attrs.axis) % int(call.ty.ndim)
    return builder.call_te(
        topi.concatenate, parts, axis, primfunc_name_hint="concatenate", primfunc_attrs={CONCAT: axis}
    )


CONCATS: dict[str, FLegalize] = {"relax.concat": _concat}
