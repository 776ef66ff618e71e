"""From the text of a Relay module to its tree.

The parser [1] is LALR(1), which keeps its own stack: texts may be nested as deeply as they like. Trees may not, since
what comes after recurs.

[1] lark, https://github.com/lark-parser/lark
"""

from __future__ import annotations

import re
import threading
from functools import cache
from importlib.resources import files
from typing import Any

import lark
import numpy as np
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from fusion.errors import RelayTextError
from fusion.frontends.relay.build import Builder
from fusion.frontends.relay.metadata import Metadata, MetadataError
from fusion.frontends.relay.syntax import Expression, Function, Position, RelayModule, show_place

_METADATA = re.compile(r"^[ \t]*#\[metadata\]", re.MULTILINE)
_DEEPEST = 200
"""Levels of the tree, of which a call in a call takes two (the call and its arguments): what comes after has at most
four frames for two of them, so it stays within half of Python's limit of 1000."""
_LEAVES = (str, int, float, Position, np.ndarray, type(None))
_SHOWN_CHOICES = 6
_WORDS = {
    "LOCAL": "a name (%x)", "GRAPH": "a number (%0)", "GLOBAL": "a function's name (@f)", "IDENTIFIER": "a word",
    "NUMBER": "a number", "STRING": "a string", "INDEX": "an index", "META": "meta[...][...]", "$END": "the end",
    "VERSION": '#[version = "0.0.5"]',
}  # fmt: skip


def parse(text: str, origin: str = "") -> RelayModule:
    """Return the module that `text` is.

    Args:
        text: As `astext()` or `print` give it, with its metadata section if it has one.
        origin: Path of the file, for errors.

    Raises:
        RelayTextError: The text breaks Relay's grammar, or a name or an entry of the metadata section is missing.
        UnsupportedOperatorError: It has algebraic data types or free variables.
    """
    parser = _parser()
    with parser.lock:
        functions = parser.read(text, origin)
    module = RelayModule(functions, text, origin)
    _check_depth(module)
    return module


class _Parser:
    """Lark's parser and what it builds trees with, both made once: the tables take 0.2 s of CPU."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._builder = Builder()
        self._lark = lark.Lark(
            files(__package__).joinpath("grammar.lark").read_text(encoding="utf-8"),
            parser="lalr",
            lexer="contextual",
            transformer=self._builder,
            maybe_placeholders=False,
        )
        literals = (terminal for terminal in self._lark.terminals if terminal.pattern.type == "str")
        self._words = {terminal.name: f"`{terminal.pattern.value}`" for terminal in literals} | _WORDS

    def read(self, text: str, origin: str) -> dict[str, Function]:
        """Return the functions of `text`; see `parse`."""
        code, metadata = _split(text, origin)
        self._builder.begin(text, origin, metadata)
        try:
            self._lark.parse(code)
            return self._builder.functions
        except UnexpectedInput as error:
            raise self._error(error, text, origin) from None
        finally:
            self._builder.begin("", "", Metadata(""))

    def _error(self, error: UnexpectedInput, text: str, origin: str) -> RelayTextError:
        place = Position(max(error.line, 1), max(error.column, 1))
        found, choices = "this character has no meaning", set()
        if isinstance(error, UnexpectedToken):
            found, choices = f"`{error.token[:20]}` cannot stand here", error.expected
            if error.token.type == "$END":
                found, place = "the text ends here", Position(error.token.end_line or 1, error.token.end_column or 1)
        elif isinstance(error, UnexpectedCharacters):
            choices = error.allowed or set()
        names = sorted(self._words[name] for name in choices if name in self._words)
        why = f"what can is {', '.join(names)}" if 0 < len(names) <= _SHOWN_CHOICES else ""
        return RelayTextError(found, where=show_place(text, place, origin), why=why)


@cache
def _parser() -> _Parser:
    return _Parser()


def _split(text: str, origin: str) -> tuple[str, Metadata]:
    """Return the code of `text`, and its metadata section read."""
    match = _METADATA.search(text)
    if match is None:
        return text, Metadata("")
    try:
        return text[: match.start()], Metadata(text[match.end() :])
    except MetadataError as error:
        first = Position(text.count("\n", 0, match.end()) + 1, match.end() - text.rfind("\n", 0, match.end()))
        raise RelayTextError(
            "the metadata section cannot be read",
            where=show_place(text, _within(first, error.place), origin),
            why=str(error),
        ) from error


def _within(first: Position, place: Position | None) -> Position:
    """Return `place`, counted from `first`, in the whole text."""
    if place is None:
        return first
    column = place.column + first.column - 1 if place.line == 1 else place.column
    return Position(first.line + place.line - 1, column)


def _check_depth(module: RelayModule) -> None:
    """Refuse a tree in which what comes after would exceed Python's limit of recursion."""
    work: list[tuple[Any, int, Position]] = [
        (function, 0, function.position) for function in module.functions.values()
    ]
    while work:
        node, depth, place = work.pop()
        if depth > _DEEPEST:
            raise RelayTextError(
                f"the text is nested more than {_DEEPEST // 2} deep",
                where=module.where(place),
                hint="bind parts of it: `%0 = ...;`",
            )
        place = node.position if isinstance(node, Expression) else place
        parts = node if isinstance(node, tuple) else node.values() if isinstance(node, dict) else vars(node).values()
        work.extend((part, depth + 1, place) for part in parts if not isinstance(part, _LEAVES))
