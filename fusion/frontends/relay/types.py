"""Relay's types against what was computed."""

from __future__ import annotations

from collections.abc import Sequence

from tvm.relax import Expr

from fusion.errors import InvalidModelError
from fusion.frontends.relay.scope import Value
from fusion.frontends.relay.syntax import Position, TensorType, TupleType, Type
from fusion.shapes import dims_of


def check_value(value: Value, kind: Type | None, what: str, position: Position) -> None:
    """Check `value` against the type that the text declares; types of functions and named types are not compared.

    Raises:
        InvalidModelError: They contradict each other.
    """
    if isinstance(kind, TupleType):
        if not isinstance(value, tuple) or len(value) != len(kind.fields):
            raise _contradiction(value, kind, what, position)
        for index, (entry, field) in enumerate(zip(value, kind.fields, strict=True)):
            check_value(entry, field, f"{what}.{index}", position)
    elif isinstance(kind, TensorType) and not (isinstance(value, Expr) and _conforms(value, kind)):
        raise _contradiction(value, kind, what, position)


def _conforms(value: Expr, kind: TensorType) -> bool:
    dims = dims_of(value.ty.shape)
    if str(value.ty.dtype) != kind.dtype or (dims is not None and len(dims) != len(kind.shape)):
        return False
    pairs = zip(dims or (), kind.shape, strict=False)
    return all(have is None or want is None or have == want for have, want in pairs)


def _contradiction(value: Value, kind: Type, what: str, position: Position) -> InvalidModelError:
    return InvalidModelError(
        f"{what} is not of the type that the text declares",
        where=str(position),
        why=f"it is {describe(value)}, declared is {name_of(kind)}",
    )


def describe(value: Value) -> str:
    """Return the type of `value` in Relay's notation."""
    if isinstance(value, tuple):
        return f"({', '.join(map(describe, value))})"
    if isinstance(value, Expr):
        dims = dims_of(value.ty.shape)
        return f"Tensor[{'(...)' if dims is None else _written(dims)}, {value.ty.dtype}]"
    return "a function"


def name_of(kind: Type) -> str:
    """Return `kind` in Relay's notation."""
    if isinstance(kind, TensorType):
        return f"Tensor[{_written(kind.shape)}, {kind.dtype}]"
    if isinstance(kind, TupleType):
        return f"({', '.join(map(name_of, kind.fields))})"
    return "another type"


def _written(dims: Sequence[int | None]) -> str:
    return f"({', '.join('?' if dim is None else str(dim) for dim in dims)})"
