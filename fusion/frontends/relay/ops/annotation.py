"""Operators that say something about their operand and compute nothing."""

from __future__ import annotations

from tvm.relax import Expr

from fusion.frontends.relay.call import Call
from fusion.frontends.relay.registry import translates


@translates(
    "annotation.bitpack_end",
    "annotation.bitpack_start",
    "annotation.cast_hint",
    "annotation.checkpoint",
    "annotation.compiler_begin",
    "annotation.compiler_end",
    "annotation.stop_fusion",
    "debug",
    "device_copy",
    "on_device",
)
def identity(call: Call) -> Expr:
    return call.x(0)
