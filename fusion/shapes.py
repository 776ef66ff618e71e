"""Shapes of values, as far as they are known before a run."""

from __future__ import annotations

from tvm import relax, tirx

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


def is_static(value: relax.Expr) -> bool:
    """Return whether `value` is a tensor of known extents."""
    return known_shape(value) is not None


def static_shape(value: relax.Expr | tirx.Var) -> tuple[int, ...]:
    """Return the shape of a tensor, or of a buffer of a PrimFunc, whose extents are all known."""
    return tuple(int(extent) for extent in value.ty.shape)
