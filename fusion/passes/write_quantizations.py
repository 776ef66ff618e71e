"""Write quantisations by one scale as the arithmetic that they are, whose axes may lie in any order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax
from tvm.ir import GenericConst

from fusion.bindings import call_name
from fusion.constants import constant
from fusion.passes.rebuild import rebuild_main
from fusion.tensors import as_numpy


@dataclass(frozen=True)
class WriteQuantizations:
    """`quantize(x, s, z)`  ->  `astype(clip(round(x / s) + z, low, high))`, `dequantize(x, s, z)`  ->
    `astype(astype(x, int32) - z, float32) * s`, by known numbers."""

    name: str = "write_quantizations"

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        return rebuild_main(mod, _visit, only=("quantize", "dequantize"))


def _visit(builder: relax.BlockBuilder, var: relax.Var, value: relax.Expr) -> relax.Expr:
    if call_name(value) not in ("quantize", "dequantize"):
        return value
    data, *parameters = value.args
    if not all(isinstance(each, GenericConst) and as_numpy(each.value).size == 1 for each in parameters):
        return value
    scale, zero = (as_numpy(each.value).reshape(()) for each in parameters)
    dtype, op, emit = str(value.attrs.out_dtype), relax.op, builder.emit
    if call_name(value) == "dequantize":
        if dtype != "float32" or zero.dtype.kind not in "iu":
            return value
        wide = emit(op.astype(data, "int32"))
        centred = emit(op.subtract(wide, constant(zero.astype("int32")))) if zero else wide
        return op.multiply(emit(op.astype(centred, "float32")), constant(scale))
    if dtype not in ("uint8", "int8"):
        return value
    limits = np.iinfo(dtype)
    rounded = emit(op.round(emit(op.divide(data, constant(scale)))))
    moved = emit(op.add(rounded, constant(zero.astype("float32")))) if zero else rounded
    return op.astype(emit(op.clip(moved, float(limits.min), float(limits.max))), dtype)
