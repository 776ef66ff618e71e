"""Makes the tree of a Relay module while the grammar's rules are recognised: each method is a rule, and finds out what
its names mean.

A rule is recognised as soon as its last token is read, so the rules that open a scope run before what stands inside.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from lark import Token
from lark.visitors import v_args

from fusion.errors import UnsupportedOperatorError
from fusion.frontends.relay.build_values import Attribute, ValueBuilder, place_of
from fusion.frontends.relay.literals import read_scalar
from fusion.frontends.relay.metadata import Metadata
from fusion.frontends.relay.names import Scopes
from fusion.frontends.relay.syntax import (
    Constant,
    Expression,
    Field,
    Function,
    FunctionCall,
    FunctionType,
    GlobalReference,
    If,
    LetBlock,
    NamedType,
    OperatorCall,
    OperatorReference,
    Parameter,
    Position,
    Reference,
    TensorType,
    TupleOf,
    TupleType,
    show_place,
)

_TYPES = (TensorType, TupleType, FunctionType, NamedType)
_INFIX = {
    "+": "add", "-": "subtract", "*": "multiply", "/": "divide", "<": "less", "<=": "less_equal", ">": "greater",
    ">=": "greater_equal", "==": "equal", "!=": "not_equal",
}  # fmt: skip
_UNSUPPORTED = {
    "free_var": "wrap the expression in relay.Function, or in a module with IRModule.from_expr, before printing it",
    "extern": "fusion takes no algebraic data types",
    "match": "fusion takes no algebraic data types",
    "type": "fusion takes no algebraic data types",
}

Item: TypeAlias = "Expression | Attribute"


@v_args(inline=True)
class Builder(ValueBuilder):
    """Functions, blocks and expressions.

    Attributes:
        functions: Of the text, by name, as far as it has been read.
    """

    def begin(self, text: str, origin: str, metadata: Metadata) -> None:
        """Forget the last text. The first two are for errors."""
        super().begin(text, origin, metadata)
        self.functions: dict[str, Function] = {}
        self._called: dict[str, Position] = {}
        self._scopes = Scopes(self._error)

    # Functions

    def start(self, *parts: Any) -> None:
        """Check the version, take a text that is a function alone as `main`, and look for what nothing defines."""
        for part in parts:
            if isinstance(part, Function):
                self.functions["main"] = part
            elif isinstance(part, Token) and re.sub(r'.*"(.*)".*', r"\1", part) != "0.0.5":
                raise self._error(
                    f"version {part.split('=')[-1].strip(' ]')} of Relay's text form is not read",
                    place_of(part),
                    hint='fusion reads version "0.0.5", which TVM 0.7 to 0.19 print',
                )
        for name, position in self._called.items():
            if name not in self.functions:
                raise self._error(f"nothing defines @{name}", position, hint=self._defined())

    def _defined(self) -> str:
        names = ", ".join(f"@{name}" for name in self.functions)
        return f"the functions of the module are {names}"

    def define(self, name: Token) -> Token:
        """`def @f`"""
        if name[1:] in self.functions:
            raise self._error(f"a second function is called {name}", place_of(name))
        self._scopes.enter_global()
        return name

    def definition(self, name: Token, tail: dict[str, Any]) -> None:
        """`def @f(...) { ... }`"""
        self.functions[name[1:]] = Function(place_of(name), **tail)

    def function(self, fn: Token, tail: dict[str, Any]) -> Function:
        """`fn (...) { ... }`"""
        return Function(place_of(fn), **tail)

    def open_parameters(self) -> None:
        """`(`, behind which parameters stand."""
        self._scopes.enter()

    def parameter(self, name: Token, *parts: Any) -> Parameter:
        """`%x: T`; the device in braces tells nothing here."""
        self._scopes.bind_parameter(name[1:], place_of(name))
        return Parameter(name[1:], next(_chosen(parts, _TYPES), None), place_of(name))

    def function_tail(self, *parts: Any) -> dict[str, Any]:
        """`(%x: T, Primitive=1) -> U { ... }`"""
        self._scopes.leave()
        return {
            "parameters": tuple(_chosen(parts, Parameter)),
            "result_type": next(_chosen(parts, _TYPES), None),
            "attributes": self._attributes(_chosen(parts, Attribute)),
            "body": parts[-1],
        }

    # Blocks

    def open_block(self, brace: Token) -> Position:
        """`{`"""
        self._scopes.enter()
        return place_of(brace)

    def block(self, start: Position, *parts: Any) -> LetBlock:
        """`{ ... }`"""
        return LetBlock(start, self._scopes.leave(), self._value(parts[-1]))

    def let(self, name: Token, *_: Any) -> Token:
        """`let %x: T =`: a function may call itself, so the name is known from here."""
        self._scopes.bind_local(name[1:])
        return name

    def bind_local(self, name: Token, value: Item) -> None:
        """`let %x = a;`"""
        self._scopes.append(name[1:], self._value(value), place_of(name))

    def bind_graph(self, name: Token, value: Item) -> None:
        """`%0 = a;`"""
        self._scopes.bind_graph(name[1:], self._value(value), place_of(name))

    def drop(self, *_: Any) -> None:
        """`a;`: it has no effect."""

    def UNSUPPORTED(self, token: Token) -> Token:
        """`match`, `type`, `free_var`"""
        raise UnsupportedOperatorError(
            f"fusion does not take Relay's `{token}`",
            where=show_place(self._text, place_of(token), self._origin),
            hint=_UNSUPPORTED[token],
        )

    # Expressions

    def open_parenthesis(self, parenthesis: Token) -> Position:
        """`(` of a tuple or a group."""
        self._scopes.enter(braces=False)
        return place_of(parenthesis)

    def tuple_of(self, start: Position, *fields: Item) -> TupleOf:
        """`()`, `(a,)`, `(a, b)`"""
        self._scopes.leave()
        return TupleOf(start, tuple(self._value(field) for field in fields))

    def group(self, start: Position, *parts: Any) -> Expression:
        """`(a)`, or a block in parentheses, as the printer puts a `let` that is an operand."""
        bindings, result = self._scopes.leave(), self._value(parts[-1])
        return LetBlock(start, bindings, result) if bindings else result

    def local(self, name: Token) -> Expression:
        """`%x`, or `%x.0` where the name ends before the dot."""
        place = place_of(name)
        bound, indices = self._scopes.split(name[1:], place)
        value: Expression = Reference(place, bound)
        for index in indices:
            value = Field(place, value, index)
        return value

    def graph(self, name: Token) -> Reference:
        """`%0`"""
        self._scopes.use_graph(name[1:], place_of(name))
        return Reference(place_of(name), name[1:])

    def globally(self, name: Token) -> GlobalReference:
        """`@f`"""
        self._called.setdefault(name[1:], place_of(name))
        return GlobalReference(place_of(name), name[1:])

    def operator(self, name: Token) -> OperatorReference:
        """`nn.relu`"""
        return OperatorReference(place_of(name), str(name))

    def number(self, text: Token) -> Constant:
        """`1f`, `-5i64`"""
        return Constant(place_of(text), self._read(read_scalar, text))

    def truth(self, text: Token) -> Constant:
        """`True`"""
        return Constant(place_of(text), np.array(text == "True"))

    def constant(self, reference: Token) -> Item:
        """`meta[relay.Constant][0]`, or the attributes of a call"""
        entry = self._meta(reference)
        if isinstance(entry, np.ndarray):
            return Constant(place_of(reference), entry)
        if isinstance(entry, Mapping):
            return Attribute(entry, place_of(reference))
        raise self._error(f"{reference} is no constant", place_of(reference))

    def take(self, value: Item, index: Token) -> Field:
        """`a.0`"""
        return Field(value.position, self._value(value), self._index(index))

    def infix(self, left: Item, sign: Token, right: Item) -> OperatorCall:
        """`a + b`"""
        return OperatorCall(left.position, _INFIX[sign], (self._value(left), self._value(right)))

    def call(self, callee: Item, *items: Any) -> OperatorCall | FunctionCall:
        """`nn.relu(a)`, `%f(a)`"""
        attributes = self._attributes(_chosen(items, Attribute))
        arguments = tuple(_chosen(items, Expression))
        if isinstance(callee, OperatorReference):
            return OperatorCall(callee.position, callee.name, arguments, attributes)
        return FunctionCall(callee.position, self._value(callee), arguments, attributes)

    def branch(self, start: Token, condition: Item, then: LetBlock, otherwise: LetBlock) -> If:
        """`if (c) { a } else { b }`"""
        return If(place_of(start), self._value(condition), then, otherwise)

    def _value(self, item: Item) -> Expression:
        if isinstance(item, Attribute):
            raise self._error("attributes stand where a value should", item.position)
        return item


def _chosen(parts: Any, kind: Any) -> Any:
    return (part for part in parts if isinstance(part, kind))
