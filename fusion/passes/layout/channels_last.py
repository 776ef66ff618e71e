"""Which convolutions run channels-last: those for which there is an anchor, as TVM has no other form of them that reads
channels last and weights of OIHW."""

from __future__ import annotations

from tvm import relax
from tvm.ir import GenericConst

from fusion.bindings import call_name

_DTYPES = {"nn.conv2d": {"float32", "bfloat16"}, "nn.conv2d_transpose": {"float32"}}
"""Of the operands, by operator; the results are float32."""


def why_not_channels_last(call: relax.Call, weights: relax.Expr) -> str:
    """Return why a convolution by `weights` runs on N, C, spatial; "" where it runs channels-last."""
    dtypes, result = {str(arg.ty.dtype.dtype): None for arg in call.args}, str(call.ty.dtype.dtype)
    if call_name(call) == "nn.conv2d" and (*dtypes, result) == ("uint8", "int8", "int32"):
        return "" if isinstance(weights, GenericConst) else "its weights in bytes are no constant"
    if result != "float32" or len(dtypes) > 1 or not dtypes.keys() <= _DTYPES[call_name(call)]:
        return f"it computes in {' and '.join(dict.fromkeys((*dtypes, result)))}"
    is_known = isinstance(weights, GenericConst) or "bfloat16" not in dtypes
    return "" if is_known else "its weights in bfloat16 are no constant"
