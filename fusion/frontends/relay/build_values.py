"""The parts of a Relay module that compute nothing, while the grammar's rules are recognised: attributes, types and
tokens, and what all rules need to say where an error is."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from lark import Token
from lark.visitors import Transformer, v_args

from fusion.errors import RelayTextError
from fusion.frontends.relay.arrays import is_dtype
from fusion.frontends.relay.literals import NumberError, read_extent, read_plain, read_string
from fusion.frontends.relay.metadata import Entry, Metadata, MetadataError
from fusion.frontends.relay.syntax import (
    FunctionType,
    NamedType,
    Position,
    TensorType,
    TupleType,
    Type,
    Value,
    show_place,
)

_META = re.compile(r"meta\[(.*)\]\[(\d+)\]")
_INDEX_LIMIT = 1 << 31
Found = TypeVar("Found")


class Attribute(NamedTuple):
    """`key=value`, or the attributes of an entry of the metadata section."""

    entries: Mapping[str, Value]
    position: Position


@v_args(inline=True)
class ValueBuilder(Transformer[Token, Any]):
    """Lark calls the methods of one object for all texts, so a text begins with `begin`."""

    def __init__(self) -> None:
        super().__init__(visit_tokens=False)
        self.begin("", "", Metadata(""))

    def begin(self, text: str, origin: str, metadata: Metadata) -> None:
        """Forget the last text. The first two are for errors."""
        self._text, self._origin, self._metadata = text, origin, metadata

    def _error(self, what: str, position: Position, *, why: str = "", hint: str = "") -> RelayTextError:
        return RelayTextError(what, where=show_place(self._text, position, self._origin), why=why, hint=hint)

    # Attributes

    def key(self, name: Token) -> Token:
        """The name of an attribute, which may be a word that means something elsewhere."""
        return name

    def attribute(self, key: Token, value: Value) -> Attribute:
        """`key=value`"""
        return Attribute({str(key): value}, place_of(key))

    def quoted_entry(self, key: Token, value: Value) -> Attribute:
        """`"key"=value`"""
        return Attribute({read_string(key): value}, place_of(key))

    def _attributes(self, attributes: Any) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for entries, position in attributes:
            for key, value in entries.items():
                if key in found:
                    raise self._error(f"the attribute {key} is given twice", position)
                found[key] = value
        return found

    def number_value(self, text: Token) -> int | float:
        """`1`, `1e-05f`"""
        value: int | float = self._read(read_plain, text)
        return value

    def string_value(self, text: Token) -> str:
        """`"NCHW"`"""
        return read_string(text)

    def truth_value(self, text: Token) -> bool:
        """`False`"""
        return str(text) == "True"

    def word_value(self, text: Token) -> str | None:
        """`None`"""
        return None if text in ("None", "nullptr") else str(text)

    def unknown(self, _: Token) -> None:
        """`?`"""

    def meta_value(self, reference: Token) -> Value:
        """`meta[Map][0]`; the bounds of an `arange` are constants."""
        return self._looked_up(reference, self._metadata.value)

    def list_value(self, *values: Value) -> Value:
        """`[1, 1]`"""
        return values

    def map_value(self, *entries: Attribute) -> Value:
        """`{a=1, "b"=2}`"""
        return self._attributes(entries)

    # Types

    def named_type(self, name: Token, *arguments: Type) -> Type:
        """`float32`, `List[A]`, `_`"""
        return TensorType((), str(name)) if is_dtype(name) else NamedType(str(name), arguments)

    def tensor_type(self, *parts: Any) -> TensorType:
        """`Tensor[(1, ?), float32]`"""
        *extents, dtype = parts
        if not is_dtype(dtype):
            raise self._error(f"{dtype} is no dtype that fusion takes", place_of(dtype))
        return TensorType(tuple(extents), str(dtype))

    def extent(self, text: Token) -> int | None:
        """`8`, `?`; an expression in the metadata section is not known."""
        if text.type == "NUMBER":
            extent: int = self._read(read_extent, text)
            return extent
        found = self._meta(text) if text.type == "META" else None
        return found if isinstance(found, int) else None

    def tuple_type(self, *fields: Type) -> TupleType:
        """`(T, U)`"""
        return TupleType(fields)

    def function_type(self, *parts: Any) -> FunctionType:
        """`fn (T) -> U`"""
        return FunctionType(parts[-2], parts[-1])

    def function_type_parameters(self, *types: Type) -> tuple[Type, ...]:
        """`(T, U)`"""
        return types

    def meta_type(self, reference: Token) -> NamedType:
        """A type that has no text."""
        return NamedType(str(reference))

    # Tokens

    def _meta(self, reference: Token) -> Entry:
        return self._looked_up(reference, self._metadata.entry)

    def _looked_up(self, reference: Token, look_up: Callable[[str, int], Found]) -> Found:
        match = _META.fullmatch(reference)
        assert match is not None
        try:
            return look_up(match[1], self._index(Token.new_borrow_pos("INDEX", match[2], reference)))
        except MetadataError as error:
            raise self._error(f"{reference} cannot be read", place_of(reference), why=str(error)) from error

    def _index(self, text: Token) -> int:
        if len(text) > len(str(_INDEX_LIMIT)):
            raise self._error(f"no tuple has {text[:20]}... fields", place_of(text))
        return int(text)

    def _read(self, read: Any, text: Token) -> Any:
        try:
            return read(str(text))
        except NumberError as error:
            raise self._error(str(error), place_of(text)) from error


def place_of(token: Token) -> Position:
    """Return where `token` begins."""
    return Position(token.line or 1, token.column or 1)
