"""Shapes of values, as far as they are known before a run."""

from __future__ import annotations

from dataclasses import replace

from tvm import relax, tirx

from fusion.declined import Declined
from fusion.extents import Extent, Sizes

Dims = tuple[int | None, ...]


def dims_of(shape: relax.Expr | None) -> Dims | None:
    """Return the extents of the shape of a tensor, None for each that only the run knows; None where not even the rank
    is known."""
    if not isinstance(shape, relax.ShapeExpr):
        return None
    return tuple(int(extent) if isinstance(extent, tirx.IntImm) else None for extent in shape.values)


def known_extents(shape: relax.Expr | None) -> tuple[int, ...] | None:
    """Return the extents of a shape; None unless all are known before the run."""
    dims = dims_of(shape)
    return None if dims is None or None in dims else tuple(dim for dim in dims if dim is not None)


def known_shape(value: relax.Expr) -> tuple[int, ...] | None:
    """Return the shape of `value`; None unless it is a tensor of which all extents are known before the run."""
    return known_extents(value.ty.shape) if isinstance(value.ty, relax.TensorType) else None


def read_shape(value: relax.Expr) -> tuple[Extent, ...] | None:
    """Return the extents of a tensor; None where not all of them are known but for sizes of the call."""
    shape = value.ty.shape if isinstance(value.ty, relax.TensorType) else None
    try:
        return tuple(map(read_extent, shape.values)) if isinstance(shape, relax.ShapeExpr) else None
    except Declined:
        return None


def read_extent(expr: tirx.PrimExpr) -> Extent:
    """Return what `fit` found of an expression that it became.

    Raises:
        Declined: It is another expression.
    """
    match expr:
        case tirx.IntImm():
            return Extent(int(expr.value))
        case tirx.Var():
            return Extent(0, 1, (expr.name,))
        case tirx.Mul():
            first, second = read_extent(expr.a), read_extent(expr.b)
            if second.is_static and not first.constant:
                return Extent(0, first.coefficient * second.constant, first.symbols)
            if first.is_static and not second.constant:
                return Extent(0, second.coefficient * first.constant, second.symbols)
            if not first.constant and not second.constant:
                symbols = sorted((*first.symbols, *second.symbols))
                return Extent(0, first.coefficient * second.coefficient, tuple(symbols))
        case tirx.Add() | tirx.Sub():
            first, second = read_extent(expr.a), read_extent(expr.b)
            sign = 1 if isinstance(expr, tirx.Add) else -1
            if second.is_static:
                return replace(first, constant=first.constant + sign * second.constant)
    raise Declined(f"the extent {expr} is no product of sizes")


def shape_at(value: relax.Expr, sizes: Sizes) -> tuple[int, ...] | None:
    """Return the shape of `value` where its symbols have these sizes; None unless that is all it depends on."""
    if not sizes:
        return known_shape(value)
    extents = read_shape(value)
    return None if extents is None else tuple(extent.at(sizes) for extent in extents)


def is_static(value: relax.Expr) -> bool:
    """Return whether `value` is a tensor of known extents."""
    return known_shape(value) is not None


def static_shape(value: relax.Expr | tirx.Var) -> tuple[int, ...]:
    """Return the shape of a tensor, or of a buffer of a PrimFunc, whose extents are all known."""
    return tuple(int(extent) for extent in value.ty.shape)
