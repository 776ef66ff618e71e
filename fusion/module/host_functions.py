"""What compiled code calls by name: operators whose results have a size that only the data tells, run in NumPy, and
what raises the errors of its checks.

TVM has them in its Python package, which a process that only loads a module does not import.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from fusion.carried_errors import REFUSE, carried
from fusion.guards import CHECK
from fusion.guards.in_numpy import first_failure, kept
from fusion.guards.kinds import failure, operand_guard
from fusion.runtime import Tensor, tvm_ffi
from fusion.tensors import aligned_copy, as_numpy

NONZERO, UNIQUE = "fusion.nonzero", "fusion.unique"


def _nonzero(x: Tensor) -> Tensor:
    """Return the indices of what is not zero, [rank, count] int64."""
    return aligned_copy(np.stack(np.atleast_1d(as_numpy(x)).nonzero()))


def _unique(x: Tensor, in_order: int, index: int, inverse: int, counts: int, axis: int | None = None) -> Any:
    """Return the distinct elements (along an axis: slices), sorted or by first place, and what else is asked for:
    where each stands first, which of them each element is, and how often each stands there."""
    array = as_numpy(x)
    values, first, which, many = np.unique(array, True, True, True, axis=axis)
    which = which.reshape(-1)
    if not in_order:
        order = np.argsort(first)
        values = np.take(values, order, axis=axis)
        first, many, which = first[order], many[order], np.argsort(order)[which]
    asked = [part for part, wanted in ((first, index), (which, inverse), (many, counts)) if wanted]
    results = [aligned_copy(part) for part in (values, *asked)]
    return tvm_ffi.convert(results) if asked else results[0]


@carried
def _refuse(what: str, where: str, why: str, value: float, *bounds: int) -> NoReturn:
    """Raise the ExecutionError of a check that found `value`; see `fusion.guards`."""
    raise failure(what, where, why, value, bounds)


@carried
def _check(values: Tensor, data: Tensor, kind: str, where: str, *axes: int) -> Tensor:
    """Return checked `values` of which, or of `data`, the run alone knows the shape; see `fusion.guards`."""
    array, guard = as_numpy(values), operand_guard(kind, where, axes, tuple(int(extent) for extent in data.shape))
    error = first_failure(array, guard)
    if error is not None:
        raise error
    return aligned_copy(kept(array, guard).astype(array.dtype, copy=False)) if guard.kind == "index" else values


tvm_ffi.register_global_func(NONZERO, _nonzero, override=True)
tvm_ffi.register_global_func(UNIQUE, _unique, override=True)
tvm_ffi.register_global_func(REFUSE, _refuse, override=True)
tvm_ffi.register_global_func(CHECK, _check, override=True)
