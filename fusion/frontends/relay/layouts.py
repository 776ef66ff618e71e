"""Tensors brought from one layout to another, as Relay writes them: `NCHW`, `NHWC`, `NCHW8c`."""

from __future__ import annotations

from tvm.relax import Expr

from fusion.frontends.relay.call import Call
from fusion.frontends.relay.ops.reshape import with_layout


def relayout(call: Call, x: Expr, source: str, target: str) -> Expr:
    """Return `x`, which lies as `source` says, as `target` says.

    Raises:
        Declined: One is no layout, they have different axes, or a split does not divide an axis.
    """
    return x if source == target and source.isupper() else call.emit(with_layout(call, x, source, target))
