"""Sums of products over named axes."""

from __future__ import annotations

from tvm import relax
from tvm.relax import Expr

from fusion.declined import Declined
from fusion.frontends.relay.call import Call, dtype_of
from fusion.frontends.relay.registry import translates


@translates("einsum")
def einsum(call: Call) -> Expr:
    """As Relax's own, which `fusion/passes/lower_einsum.py` makes products of matrices where it can."""
    fields = call.fields(0)
    if len({dtype_of(field) for field in fields}) > 1:
        raise Declined("einsum of several dtypes")
    return relax.op.einsum(fields, call.text("equation", "").replace(" ", ""))
