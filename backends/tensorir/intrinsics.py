"""Operations on one number that TVM does not have."""

from __future__ import annotations

import tvm_ffi
from tvm.ir import register_op_attr

GELU = "tirx.gelu"
"""Of a float32: in terms of others, what makes vectors of it would not find it again."""
_PURE = 1  # tirx.CallEffectKind
tvm_ffi.get_global_func("ir.RegisterOp")(GELU, "x times the share of a standard normal distribution below x")
register_op_attr(GELU, "TCallEffectKind", _PURE)
register_op_attr(GELU, "TScriptPrinterName", "gelu")
