"""What compiled code calls by name: operators whose results have a size that only the data tells, run in NumPy, and
what raises the errors of its checks.

TVM has them in its Python package, which a process that only loads a module does not import.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NoReturn

import numpy as np

from fusion.carried_errors import carried
from fusion.errors import ExecutionError
from fusion.runtime import Tensor, tvm_ffi
from fusion.tensors import aligned_copy, as_numpy

NONZERO, UNIQUE, REFUSE, CHECK = "fusion.nonzero", "fusion.unique", "fusion.refuse", "fusion.check"


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
def _refuse(what: str, where: str, why: str, value: float) -> NoReturn:
    """Raise the ExecutionError of a check that found `value`; see `fusion.guards`."""
    raise ExecutionError(what, where=where, why=why.replace("{value}", str(value)))


@carried
def _check(values: Tensor, data: Tensor, kind: str, where: str, *axes: int) -> Tensor:
    """Return checked `values` of which, or of `data`, the run alone knows the shape; see `fusion.guards`."""
    sizes = [int(data.shape[axis]) for axis in axes] or [prod(int(extent) for extent in data.shape)]
    return _CHECKS[kind](values, where, axes, sizes)


def _divisors(values: Tensor, where: str, axes: Sequence[int], sizes: Sequence[int]) -> Tensor:
    if not as_numpy(values).all():
        raise ExecutionError("an integer is divided by zero", where=where, why="the divisor is 0")
    return values


def _indices(values: Tensor, where: str, axes: Sequence[int], sizes: Sequence[int]) -> Tensor:
    """Each in turn is into one of `axes`, of which negative ones count from the end."""
    array = as_numpy(values)
    columns = array.reshape(-1, len(sizes)).astype("int64")
    for axis, (column, size) in enumerate(zip(columns.T, sizes, strict=True)):
        outside = column[(column < -size) | (column >= size)]
        if outside.size:
            name = axes[axis] if axes else 0
            why = f"axis {name} has {size} entries: index {outside[0]} is not in {-size}..{size - 1}"
            raise ExecutionError("an index is outside its axis", where=where, why=why)
        column[column < 0] += size
    return aligned_copy(columns.reshape(array.shape).astype(array.dtype))


def _lengths(values: Tensor, where: str, axes: Sequence[int], sizes: Sequence[int]) -> Tensor:
    array, (axis,), (size,) = as_numpy(values), axes, sizes
    outside = array[(array < 0) | (array > size)]
    if outside.size:
        why = f"axis {axis} has {size} entries: {outside[0]} is not in 0..{size}"
        raise ExecutionError("a length is outside its axis", where=where, why=why)
    return values


def _boxes(values: Tensor, where: str, axes: Sequence[int], sizes: Sequence[int]) -> Tensor:
    """Rows of the number of an image, of which `sizes` has how many there are, and four coordinates."""
    rows, (count,) = as_numpy(values).astype("float32"), sizes
    images, coordinates = rows[:, 0], rows[:, 1:]
    inside = (images >= 0) & (images <= count - 1)
    if not inside.all():
        why = f"there are {count} images: {images[~inside][0]} is not in 0..{count - 1}"
        raise ExecutionError("a box is not valid", where=where, why=why)
    odd = coordinates[~np.isfinite(coordinates)]
    if odd.size:
        raise ExecutionError("a box is not valid", where=where, why=f"it is {odd[0]}")
    return values


_CHECKS: dict[str, Callable[[Tensor, str, Sequence[int], Sequence[int]], Tensor]] = {
    "divisor": _divisors,
    "index": _indices,
    "length": _lengths,
    "box": _boxes,
}


tvm_ffi.register_global_func(NONZERO, _nonzero, override=True)
tvm_ffi.register_global_func(UNIQUE, _unique, override=True)
tvm_ffi.register_global_func(REFUSE, _refuse, override=True)
tvm_ffi.register_global_func(CHECK, _check, override=True)
