"""Constants that are added to sums of narrow numbers, as narrow as these."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm import relax, te
from tvm.ir import GenericConst

from backends.cuda.kernels.device_arithmetic import NARROW
from backends.cuda.lowerings.product import at_broadcast
from fusion.bindings import call_name
from fusion.constants import constant
from fusion.declined import Declined
from fusion.shapes import known_shape
from fusion.tensors import as_numpy, numpy_dtype


@dataclass(frozen=True)
class NarrowShift:
    """A `Lowering`: what is added to sums of narrow numbers lies as a constant as narrow as they are, where that is
    exact, as it is of a model's own biases; kernels widen it where they load it. cuDNN has no engine for another."""

    name: str = "sum with a narrow constant"

    def concerns(self, builder: relax.BlockBuilder, call: relax.Call) -> bool:
        """Return whether sums of narrow numbers and a constant are added, which makes them no larger."""
        sums, shift = call.args
        grows = known_shape(sums) != known_shape(call)
        return isinstance(shift, GenericConst) and not grows and _multiplied(builder, sums) != ""

    def apply(self, builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        """Return the sum with the constant as narrow as what was multiplied.

        Raises:
            Declined: The constant has other numbers.
        """
        sums, shift = call.args
        dtype, array = _multiplied(builder, sums), as_numpy(shift.value)
        with np.errstate(over="ignore"):
            narrow = array.astype(numpy_dtype(dtype))
        if not np.array_equal(narrow.astype(array.dtype), array):
            raise Declined(f"{dtype} lacks numbers of its constant")
        return builder.call_te(_sum_with_widened, sums, constant(narrow), primfunc_name_hint="add")


def _multiplied(builder: relax.BlockBuilder, sums: relax.Expr) -> str:
    """Return the narrow dtype of the operands of which a lowering made sums in float32; "" for anything else."""
    made = builder.lookup_binding(sums) if isinstance(sums, relax.Var) else None
    if made is None or call_name(made) != "call_tir" or str(sums.ty.dtype.dtype) != "float32":
        return ""
    _, operands, *_ = made.args
    dtypes = {str(operand.ty.dtype.dtype) for operand in operands.fields}
    return next(iter(dtypes)) if len(dtypes) == 1 and dtypes <= NARROW else ""


def _sum_with_widened(sums: te.Tensor, shift: te.Tensor) -> te.Tensor:
    return te.compute(
        sums.shape,
        lambda *at: sums(*at) + shift(*at_broadcast(shift.shape, at)).astype(sums.dtype),
        name="add",
    )
