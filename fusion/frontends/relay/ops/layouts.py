"""The operator that brings a tensor from one layout to another."""

from __future__ import annotations

from tvm.relax import Expr

from fusion.frontends.relay.call import Call
from fusion.frontends.relay.layouts import with_layout
from fusion.frontends.relay.registry import translates


@translates("layout_transform")
def layout_transform(call: Call) -> Expr:
    return with_layout(call, call.x(0), call.text("src_layout", ""), call.text("dst_layout", ""))
