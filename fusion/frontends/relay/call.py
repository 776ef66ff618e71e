"""One operator call as its translation sees it: operands with static types, constants, attributes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from tvm import relax
from tvm.ir import GenericConst
from tvm.relax import BlockBuilder, Expr

from fusion.constants import constant
from fusion.declined import Declined
from fusion.errors import LimitError
from fusion.frontends.relay.syntax import Position, Value
from fusion.shapes import known_shape
from fusion.tensors import as_numpy, numpy_dtype

Operand: TypeAlias = "Expr | tuple[Operand, ...]"
"""A tensor, or a tuple of operands."""


_LARGEST_CONSTANT = 64 << 20
"""Elements."""


@dataclass(frozen=True)
class Call:
    """A call of a Relay operator on normalised operands.

    Attributes:
        operator: Name as Relay registers it.
        operands: In order; tensors are bound expressions whose shape and dtype are known.
        attributes: As the text gives them; one that is left out has Relay's default, which the translation knows.
        position: Where the call stands.
        builder: Where translations emit bindings.
    """

    operator: str
    operands: tuple[Operand, ...]
    attributes: Mapping[str, Value]
    position: Position
    builder: BlockBuilder

    def x(self, index: int) -> Expr:
        """Return operand `index`, a tensor."""
        return self._filled(self._tensor(index))

    def fields(self, index: int) -> tuple[Expr, ...]:
        """Return the tensors of operand `index`, a tuple of tensors."""
        operand = self.operands[index] if index < len(self.operands) else None
        if not isinstance(operand, tuple) or any(isinstance(field, tuple) for field in operand):
            raise Declined(f"operand {index} is no tuple of tensors")
        return tuple(self._filled(field) for field in operand)

    def shape(self, index: int) -> tuple[int, ...]:
        """Return the static shape of operand `index`."""
        return shape_of(self._tensor(index))

    def rank(self, index: int) -> int:
        """Return the number of axes of operand `index`."""
        return len(self.shape(index))

    def dtype(self, index: int) -> str:
        """Return the dtype of operand `index`."""
        return dtype_of(self._tensor(index))

    def is_const(self, index: int) -> bool:
        """Return whether operand `index` is given and a constant tensor."""
        return index < len(self.operands) and isinstance(self.operands[index], GenericConst)

    def const(self, index: int) -> np.ndarray:
        """Return the value of operand `index`; refuses where it is no constant."""
        operand = self._tensor(index)
        if not isinstance(operand, GenericConst):
            raise Declined(f"operand {index} is not constant")
        return as_numpy(operand.value)

    def const_ints(self, index: int) -> tuple[int, ...]:
        """Return the elements of the constant operand `index`, a vector or a scalar of integers."""
        array = self.const(index)
        if array.dtype.kind not in "iub":
            raise Declined(f"operand {index} is of {array.dtype}, not of integers")
        return tuple(int(item) for item in array.reshape(-1))

    def require_room(self, *sizes: int) -> None:
        """Raise unless a constant of so many elements, the product of `sizes`, may be made while compiling.

        Raises:
            LimitError: It is too large.
        """
        if math.prod(sizes) > _LARGEST_CONSTANT:
            raise LimitError(
                f"{self.operator} needs a constant of {math.prod(sizes):,} elements",
                where=f"{self.operator}, {self.position}",
                why=f"constants that are made while compiling have up to {_LARGEST_CONSTANT:,}",
            )

    def emit(self, expr: Expr) -> Expr:
        """Bind `expr` to a variable, so that it is computed once and its type is known."""
        return self.builder.emit(expr)

    def like(self, value: float, index: int = 0) -> Expr:
        """Return a scalar constant of the dtype of operand `index`."""
        return scalar(value, self.dtype(index))

    def has(self, name: str) -> bool:
        """Return whether the text gives attribute `name` a value other than None."""
        return self.attributes.get(name) is not None

    def value(self, name: str) -> Value:
        """Return attribute `name` as the text gives it, or None."""
        return self.attributes.get(name)

    def number(self, name: str, default: float) -> float:
        """Return a number, integer or not, or `default` where it is left out."""
        value = self._given(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(name, value, "a number")
        return float(value)

    def integer(self, name: str, default: int) -> int:
        """Return an integer, or `default` where it is left out."""
        return self._integer(name, self._given(name, default))

    def optional_integer(self, name: str) -> int | None:
        """Return an integer, or None where it is left out or None."""
        return self._integer(name, self.value(name)) if self.has(name) else None

    def ints(self, name: str, default: Sequence[int] = ()) -> tuple[int, ...]:
        """Return a list of integers, or `default` where it is left out or None; a single integer is a list of one."""
        value = self._given(name, tuple(default))
        items = value if isinstance(value, tuple) else (value,)
        return tuple(self._integer(name, item) for item in items)

    def optional_ints(self, name: str) -> tuple[int, ...] | None:
        """Return a list of integers, or None where it is left out or None."""
        return self.ints(name) if self.has(name) else None

    def numbers(self, name: str, default: Sequence[float] = ()) -> tuple[float, ...]:
        """Return a list of numbers, or `default` where it is left out or None; a single number is a list of one."""
        value = self._given(name, tuple(default))
        items = value if isinstance(value, tuple) else (value,)
        if any(isinstance(item, bool) or not isinstance(item, int | float) for item in items):
            raise self._wrong(name, value, "a list of numbers")
        return tuple(float(item) for item in items if isinstance(item, int | float))

    def flag(self, name: str, default: bool) -> bool:
        """Return a truth value, which may be written 0 or 1, or `default` where it is left out."""
        value = self._given(name, default)
        if not isinstance(value, int) or value not in (0, 1):
            raise self._wrong(name, value, "a truth value")
        return bool(value)

    def text(self, name: str, default: str) -> str:
        """Return a string, or `default` where it is left out or None."""
        value = self._given(name, default)
        if not isinstance(value, str):
            raise self._wrong(name, value, "a string")
        return value

    def dtype_attribute(self, name: str, default: str) -> str:
        """Return a dtype, or `default` where it is left out, empty or `void`, as Relay prints the dtype of nothing."""
        value = self.text(name, "")
        if value in ("", "void", "handle", "None"):
            return default
        try:
            numpy_dtype(value)
        except TypeError as error:
            raise self._wrong(name, value, "a dtype") from error
        return value

    def axis(self, name: str, default: int, rank: int | None = None) -> int:
        """Return an axis of operand 0, or of a tensor of `rank` axes, as a number from 0."""
        return self.axis_of(self.integer(name, default), rank)

    def axis_of(self, axis: int, rank: int | None = None) -> int:
        """Return `axis`, which may count from the end, as a number from 0; refuses one that operand 0 does not have."""
        rank = self.rank(0) if rank is None else rank
        if not -rank <= axis < rank:
            raise Declined(f"there is no axis {axis} among {rank}")
        return axis % rank

    def _tensor(self, index: int) -> Expr:
        if index >= len(self.operands):
            raise Declined(f"operand {index} is missing")
        operand = self.operands[index]
        if isinstance(operand, tuple):
            raise Declined(f"operand {index} is a tuple, not a tensor")
        return operand

    def _filled(self, expr: Expr) -> Expr:
        """Return `expr`, a constant without elements as `zeros`: TVM writes such ones to a file that it cannot read."""
        if isinstance(expr, GenericConst) and 0 in shape_of(expr):
            return self.emit(relax.op.zeros(shape_of(expr), dtype_of(expr)))
        return expr

    def _given(self, name: str, default: Value) -> Value:
        value = self.attributes.get(name)
        return default if value is None else value

    def _integer(self, name: str, value: Value) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(name, value, "an integer")
        return value

    def _wrong(self, name: str, value: Value, kind: str) -> Declined:
        return Declined(f"attribute {name} is {value!r}, not {kind}")


def shape_of(expr: Expr) -> tuple[int, ...]:
    """Return the static shape of `expr`; refuses where it is not known."""
    shape = known_shape(expr)
    if shape is None:
        raise Declined("a shape depends on data")
    return shape


def dtype_of(expr: Expr) -> str:
    """Return the dtype of `expr`."""
    return str(expr.ty.dtype)


def scalar(value: float, dtype: str) -> Expr:
    """Return a constant of rank 0."""
    return constant(np.array(value).astype(numpy_dtype(dtype)))
