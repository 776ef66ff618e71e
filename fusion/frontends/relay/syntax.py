"""A Relay module as its text says it: types, expressions and functions, each with the place where it stands.

The tree follows Relay's own language [1] without what only training and dispatch need; references (`%x`, `%0`, `@f`)
stay names.

[1] Roesch et al., Relay: A High-Level Compiler for Deep Learning, 2019.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np


class Position(NamedTuple):
    """A place in the text, both from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


@dataclass(frozen=True)
class TensorType:
    """`Tensor[(2, ?), float32]`, or a scalar's `float32`; a dimension that is not known is None."""

    shape: tuple[int | None, ...]
    dtype: str


@dataclass(frozen=True)
class TupleType:
    """`(T, U)`"""

    fields: tuple[Type, ...]


@dataclass(frozen=True)
class FunctionType:
    """`fn (T, U) -> V`"""

    parameters: tuple[Type, ...]
    result: Type


@dataclass(frozen=True)
class NamedType:
    """A type that only its name tells: of an algebraic type, or a type variable; with its arguments."""

    name: str
    arguments: tuple[Type, ...] = ()


Type: TypeAlias = "TensorType | TupleType | FunctionType | NamedType"


Value: TypeAlias = "bool | int | float | str | tuple[Value, ...] | Mapping[str, Value] | None"
"""Of an attribute; both kinds of brackets are tuples."""


@dataclass(frozen=True)
class Expression:
    """Base of what computes a value."""

    position: Position


@dataclass(frozen=True)
class Reference(Expression):
    """`%x` or `%0`: a parameter or a binding, without the sign."""

    name: str


@dataclass(frozen=True)
class GlobalReference(Expression):
    """`@f`"""

    name: str


@dataclass(frozen=True)
class OperatorReference(Expression):
    """An operator that stands without operands, as an argument."""

    name: str


@dataclass(frozen=True)
class Constant(Expression):
    """A number in the text, or an entry of the metadata section."""

    array: np.ndarray = field(compare=False)


@dataclass(frozen=True)
class TupleOf(Expression):
    """`(a, b)`"""

    fields: tuple[Expression, ...]


@dataclass(frozen=True)
class Field(Expression):
    """`a.0`"""

    value: Expression
    index: int


@dataclass(frozen=True)
class OperatorCall(Expression):
    """`nn.conv2d(a, b, padding=[1, 1, 1, 1])`"""

    operator: str
    arguments: tuple[Expression, ...]
    attributes: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class FunctionCall(Expression):
    """`%f(a, b)`, `@g(a)`: `function` computes what is called."""

    function: Expression
    arguments: tuple[Expression, ...]
    attributes: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class If(Expression):
    """`if (c) { a } else { b }`"""

    condition: Expression
    then: LetBlock
    otherwise: LetBlock


@dataclass(frozen=True)
class Binding:
    """`%0 = a;` or `let %x: T = a;`, which differ in nothing here: all is pure."""

    name: str
    value: Expression
    position: Position


@dataclass(frozen=True)
class LetBlock(Expression):
    """`{ %0 = a; let %x = b; c }`: each binding is seen by those behind it and by the result."""

    bindings: tuple[Binding, ...]
    result: Expression


@dataclass(frozen=True)
class Parameter:
    """`%x: T`; the type of a local function's parameter may be left out."""

    name: str
    type: Type | None
    position: Position


@dataclass(frozen=True)
class Function(Expression):
    """`fn (%x: T) -> U { ... }`, or the definition of a global one.

    Attributes:
        attributes: Such as `Primitive=1`, `Composite="dnnl.conv2d_relu"`.
    """

    parameters: tuple[Parameter, ...]
    result_type: Type | None
    attributes: Mapping[str, Value]
    body: LetBlock


@dataclass(frozen=True)
class RelayModule:
    """All functions by name, without the sign.

    Attributes:
        text: What they were read from, for errors.
        origin: Path of the text's file; empty for a text from elsewhere.
    """

    functions: Mapping[str, Function]
    text: str = field(default="", compare=False, repr=False)
    origin: str = ""

    def where(self, position: Position) -> str:
        """Return `position` with the line that stands there and a caret under the column, for an error's `where`."""
        return show_place(self.text, position, self.origin)


@dataclass(frozen=True)
class RelayModel:
    """A module and those of `main`'s parameters that are constants, by name."""

    module: RelayModule
    params: Mapping[str, np.ndarray]


_SHOWN = 100
"""Columns of a line that an error shows: `main` has all its parameters in one line."""


def show_place(text: str, position: Position, origin: str = "") -> str:
    """Return the place in words, and below it, where the text is known, the line with a caret."""
    words = f"{position}{f' of {origin}' if origin else ''}"
    if not text:
        return words
    lines = text.split("\n", position.line)
    line = lines[position.line - 1] if position.line <= len(lines) else ""
    start = max(0, position.column - 1 - _SHOWN * 2 // 3)
    shown = line[start : start + _SHOWN].replace("\t", " ").rstrip()
    return f"{words}\n    {shown}\n    {' ' * (position.column - 1 - start)}^"
