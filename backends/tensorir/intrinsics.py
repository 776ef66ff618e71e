"""Operations on one number that TVM does not have."""

from __future__ import annotations

import tvm_ffi
from tvm.ir import register_op_attr

GELU = "tirx.gelu"
"""Of a float32: in terms of others, what makes vectors of it would not find it again."""
SOFTMAX_WEIGHT = "tirx.softmax_weight"
"""e^x of a float32 that is the distance from a row's maximum, so not above 0: 0 where that is subnormal, and maybe to
2^-125.5."""
_PURE = 1  # tirx.CallEffectKind


def _register(name: str, description: str) -> None:
    tvm_ffi.get_global_func("ir.RegisterOp")(name, description)
    register_op_attr(name, "TCallEffectKind", _PURE)
    register_op_attr(name, "TScriptPrinterName", name.removeprefix("tirx."))


_register(GELU, "x times the share of a standard normal distribution below x")
_register(SOFTMAX_WEIGHT, "e^x for x <= 0, without subnormal results")
