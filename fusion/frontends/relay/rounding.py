"""How Relay rounds floats to integers; TVM's own operator rounds halves to even."""

from __future__ import annotations

from tvm import relax
from tvm.relax import Expr

from fusion.frontends.relay.call import Call, dtype_of, scalar


def round_half_away(call: Call, x: Expr) -> Expr:
    """Return float `x`, which is bound, rounded to the nearest integer, halves away from zero."""
    whole = call.emit(relax.op.trunc(x))
    rest = relax.op.abs(relax.op.subtract(x, whole))
    far = relax.op.greater_equal(rest, scalar(0.5, dtype_of(x)))
    return relax.op.where(far, relax.op.add(whole, relax.op.sign(x)), whole)
