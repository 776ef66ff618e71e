"""A call as a row of the tables sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax
from tvm.ir import GenericConst

from backends.onednn.operation import CONSTANT, PLAIN, Operation, PrimitiveOperand
from fusion.bindings import operand
from fusion.declined import Declined
from fusion.shapes import known_extents

_DTYPE = "float32"

Read = Callable[["ReadCall"], "Described"]


@dataclass(frozen=True, eq=False)
class Described:
    """An operation, and its constants by the argument that each is."""

    operation: Operation
    constants: Mapping[int, np.ndarray]


@dataclass(frozen=True, eq=False)
class ReadCall:
    """A call.

    Attributes:
        call: It.
        numbers: Of the values that were made before.
        next_number: That of what its first operation makes.
    """

    call: relax.Call
    numbers: Mapping[relax.Var, int]
    next_number: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the result."""
        return shape_of(self.call)

    def operand(self, name: str) -> relax.Expr:
        """Return an operand by its name."""
        return operand(self.call, name)

    def is_known(self, value: relax.Expr) -> bool:
        """Return whether a value is a constant, or was made before."""
        return isinstance(value, GenericConst) or value in self.numbers

    def argument(self, which: int, value: relax.Expr, shape: tuple[int, ...], order: str = PLAIN) -> PrimitiveOperand:
        """Return the argument `which` of a primitive, which sees `value` under a shape."""
        source = CONSTANT if isinstance(value, GenericConst) else self.numbers[value]
        return PrimitiveOperand(which, shape, source, order)

    def described(self, operation: Operation, values: Sequence[relax.Expr]) -> Described:
        """Return an operation whose operands are some `values`, in order."""
        pairs = zip(operation.operands, values, strict=True)
        return Described(
            operation, {each.argument: array_of(value) for each, value in pairs if isinstance(value, GenericConst)}
        )

    def require(self, holds: bool, why: str) -> None:
        """Decline the call unless something holds."""
        if not holds:
            raise Declined(why)


def shape_of(value: relax.Expr) -> tuple[int, ...]:
    """Return the shape of a tensor that oneDNN takes.

    Raises:
        Declined: It does not.
    """
    extents = extents_of(value)
    if not extents:
        raise Declined("it has no axes")
    return extents


def extents_of(value: relax.Expr) -> tuple[int, ...]:
    """Return the shape of a tensor that may have no axes.

    Raises:
        Declined: oneDNN does not take it.
    """
    kind = value.ty
    extents = known_extents(kind.shape) if isinstance(kind, relax.TensorType) else None
    if extents is None:
        raise Declined("only the run knows its shapes")
    if str(kind.dtype) != _DTYPE:
        raise Declined(f"only {_DTYPE} is taken")
    if 0 in extents:
        raise Declined("it has no elements")
    return extents


def array_of(value: GenericConst) -> np.ndarray:
    """Return a constant."""
    found: np.ndarray = value.value.numpy()
    return found
