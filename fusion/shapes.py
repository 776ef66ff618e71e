"""Shapes of Relax values, as far as they are known before a run."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence

from tvm import relax, tirx

from fusion.extents import Sizes

Dims = tuple[int | None, ...]
_OPERATORS: Mapping[type, Callable[[int, int], int]] = {
    tirx.Add: operator.add,
    tirx.Sub: operator.sub,
    tirx.Mul: operator.mul,
    tirx.FloorDiv: operator.floordiv,
    tirx.Min: min,
    tirx.FloorMod: operator.mod,
}
"""The arithmetic that shapes may have."""


def as_ints(values: Sequence[object]) -> tuple[int, ...]:
    """Return an attribute that is a list of integers as Python ints."""
    return tuple(int(value) for value in values)  # type: ignore[call-overload]


def dims_of(shape: relax.Expr | None) -> Dims | None:
    """Return the extents of a shape, with None for symbolic ones; None if not even the rank is known."""
    if not isinstance(shape, relax.ShapeExpr):
        return None
    # A slice is a list: an iterator over an array of TVM's takes twice as long.
    return tuple([extent.value if isinstance(extent, tirx.IntImm) else None for extent in shape.values[:]])


def known_extents(shape: relax.Expr | None) -> tuple[int, ...] | None:
    """Return the extents of a shape; None unless all are static."""
    dims = dims_of(shape)
    return None if dims is None or None in dims else tuple(dim for dim in dims if dim is not None)


def known_shape(value: relax.Expr) -> tuple[int, ...] | None:
    """Return the shape of `value`; None unless it is a tensor with static extents."""
    return known_extents(value.ty.shape) if isinstance(value.ty, relax.TensorType) else None


def shape_at(value: relax.Expr, sizes: Sizes) -> tuple[int, ...] | None:
    """Return the shape of `value` if its symbols have these sizes; None if it depends on anything else."""
    if not sizes:
        return known_shape(value)
    shape = value.ty.shape if isinstance(value.ty, relax.TensorType) else None
    if not isinstance(shape, relax.ShapeExpr):
        return None
    found = [_extent_at(extent, sizes) for extent in shape.values]
    return None if None in found else tuple(extent for extent in found if extent is not None)


def _extent_at(expr: tirx.PrimExpr, sizes: Sizes) -> int | None:
    """Return the value of an expression at `sizes`; None if it depends on anything else."""
    if isinstance(expr, tirx.IntImm):
        return int(expr.value)
    if isinstance(expr, tirx.Var):
        return sizes.get(expr.name)
    compute = _OPERATORS.get(type(expr))
    if compute is None:
        return None
    first, second = _extent_at(expr.a, sizes), _extent_at(expr.b, sizes)
    return None if first is None or second is None else compute(first, second)


def is_static(value: relax.Expr) -> bool:
    """Return whether `value` is a tensor with static extents."""
    return known_shape(value) is not None


def static_shape(value: relax.Expr | tirx.Var) -> tuple[int, ...]:
    """Return the shape of a tensor, or of a buffer of a PrimFunc, whose extents are static."""
    return tuple(int(extent) for extent in value.ty.shape)
