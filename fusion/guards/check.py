"""Puts checks into a graph: a kernel where the shape is known, a call of NumPy on the host where only the run knows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.ir import GenericConst, StringImm

from fusion.guards import CHECK
from fusion.guards.in_numpy import first_failure, kept
from fusion.guards.kernel import guard_func
from fusion.guards.kinds import Guard


def check(builder: relax.BlockBuilder, values: relax.Expr, guard: Guard) -> relax.Expr:
    """Return `values`, a tensor of known shape, as an expression that the run checks before anything reads it.

    Constants that hold are moved to their place at once. Others keep their check, as the model may never get there.
    """
    shape, dtype = tuple(int(extent) for extent in values.ty.shape), str(values.ty.dtype)
    if 0 in shape:
        return values
    wide = _kept_dtype(dtype, guard)
    if isinstance(values, GenericConst) and first_failure(values.value.numpy(), guard) is None:
        return relax.const(tvm.runtime.tensor(kept(values.value.numpy(), guard).astype(wide)))
    symbol = builder.add_func(guard_func(guard, shape, dtype, wide), f"check_{guard.kind}")
    return relax.call_tir(symbol, relax.Tuple([values]), relax.TensorType(shape, wide))


def check_in_numpy(
    builder: relax.BlockBuilder, values: relax.Expr, data: relax.Expr, kind: str, where: str, axes: Sequence[int]
) -> relax.Expr:  # fmt: skip
    """Return `values` as `check` does, where the run alone knows a shape: through a function on the host.

    Args:
        values: Of any shape, what `kind` says.
        data: What `axes` are axes of; these and `kind` as in `operand_guard`.
    """
    if kind in ("index", "position") and values.ty.dtype != "int64":
        # How large an axis is, only the run knows: the place of -1 may be beyond a narrower type.
        values = builder.emit(relax.op.astype(values, "int64"))
    axis_numbers = [tirx.IntImm("int64", axis) for axis in axes]
    texts = StringImm(kind), StringImm(where)
    return relax.op.call_pure_packed(CHECK, values, data, *texts, *axis_numbers, ty_args=values.ty)


def _kept_dtype(dtype: str, guard: Guard) -> str:
    """Return the dtype of what readers get: as it was, unless an index that counts from the start does not fit it."""
    if "int" not in dtype:
        return dtype
    return dtype if np.iinfo(dtype).max >= max(condition.largest for condition in guard.conditions) else "int64"
