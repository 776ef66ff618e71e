"""Which integers a value can hold, as far as the operators that made it tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

import numpy as np
import tvm
from tvm import relax
from tvm.ir import GenericConst

from fusion.bindings import Bindings, call_name, data_of
from fusion.shapes import known_shape


class Range(NamedTuple):
    """The integers from `low` to `high`."""

    low: int
    high: int


Parts = Sequence[Range | None]
Of = Callable[[relax.Call, Parts], Range | None]
"""Returns the range of a call from those of its operands; None where it tells nothing."""


class Ranges:
    """The ranges of the values of `main`; of a value that is not listed only its dtype tells."""

    def __init__(self, main: relax.Function) -> None:
        self._known: dict[relax.Var, Range] = {}
        self._values: dict[relax.Var, relax.Expr] = {}
        for var, value in Bindings.of(main).values.items():
            self._values[var] = value
            found = self._of_value(value)
            if found is not None and _is_integer(var):
                self._known[var] = _within(found, _dtype_range(var))

    def of(self, expr: relax.Expr) -> Range | None:
        """Return the range of an integer or bool tensor; None of anything else."""
        if not _is_integer(expr):
            return None
        return self._of_value(expr) or _dtype_range(expr)

    def _of_value(self, value: relax.Expr) -> Range | None:
        if isinstance(value, GenericConst):
            return _of_constant(value)
        if isinstance(value, relax.Var):
            return self._known.get(value)
        if isinstance(value, relax.TupleGetItem):
            whole = self._values.get(value.tuple_value)
            return _position(whole, ()) if call_name(whole) == "topk" and value.index == 1 else None
        rule = _RULES.get(call_name(value))
        return None if rule is None else rule(value, [self.of(part) for part in _operands(value)])


def _operands(call: relax.Call) -> list[relax.Expr]:
    """Return the tensors of a call, those of a tuple one by one."""
    parts: list[relax.Expr] = []
    for arg in call.args:
        parts += list(arg.fields) if isinstance(arg, relax.Tuple) else [arg]
    return parts


def _is_integer(expr: relax.Expr) -> bool:
    kind = expr.ty
    return isinstance(kind, relax.TensorType) and str(kind.dtype) in _INTEGERS


_INTEGERS = {"bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))}


def _dtype_range(expr: relax.Expr) -> Range:
    dtype = str(expr.ty.dtype)
    return Range(0, 1) if dtype == "bool" else Range(int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))


def _within(found: Range, limits: Range) -> Range:
    """Return `found`, or all of `limits` where it may have wrapped around."""
    return found if limits.low <= found.low and found.high <= limits.high else limits


def _of_constant(value: GenericConst) -> Range | None:
    if not isinstance(value.value, tvm.runtime.Tensor) or not _is_integer(value):
        return None
    array = value.value.numpy()
    return Range(int(array.min()), int(array.max())) if array.size else None


def _extent(expr: relax.Expr, axis: int | None) -> int | None:
    shape = known_shape(expr)
    if shape is None:
        return None
    return prod(shape) if axis is None else shape[axis]


def _position(call: relax.Call, parts: Parts) -> Range | None:
    """A position along an axis, as argmax and argsort return."""
    size = _extent(data_of(call), None if call.attrs.axis is None else int(call.attrs.axis))
    return Range(0, size - 1) if size else None


def _nonzero(call: relax.Call, parts: Parts) -> Range | None:
    sizes = known_shape(data_of(call))
    return Range(0, max(sizes) - 1) if sizes and max(sizes) else None


def _same(call: relax.Call, parts: Parts) -> Range | None:
    return parts[0]


def _union(call: relax.Call, parts: Parts) -> Range | None:
    known = [part for part in parts if part is not None]
    return Range(min(p.low for p in known), max(p.high for p in known)) if len(known) == len(parts) else None


def _ends(function: Callable[[int, int], int]) -> Of:
    """Return the rule of a function that takes its extremes where its operands do."""

    def rule(call: relax.Call, parts: Parts) -> Range | None:
        first, second = parts[:2]
        if first is None or second is None:
            return None
        found = [function(a, b) for a in first for b in second]
        return Range(min(found), max(found))

    return rule


def _floor_mod(call: relax.Call, parts: Parts) -> Range | None:
    divisor = parts[1]
    return Range(0, divisor.high - 1) if divisor is not None and divisor.low > 0 else None


_RULES: dict[str, Of] = {
    **dict.fromkeys(("argmax", "argmin", "argsort"), _position),
    "nonzero": _nonzero,
    **dict.fromkeys(
        ("reshape", "permute_dims", "expand_dims", "squeeze", "flatten", "broadcast_to", "astype", "take", "tile",
         "strided_slice", "repeat", "gather_elements", "gather_nd", "max", "min", "flip"), _same,
    ),
    "concat": _union,
    "where": lambda call, parts: _union(call, parts[1:]),
    "add": _ends(lambda a, b: a + b),
    "subtract": _ends(lambda a, b: a - b),
    "multiply": _ends(lambda a, b: a * b),
    "maximum": _ends(max),
    "minimum": _ends(min),
    "floor_mod": _floor_mod,
}  # fmt: skip
