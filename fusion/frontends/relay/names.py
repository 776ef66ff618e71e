"""Which names a place in the text sees, and the bindings of each block.

A `%n` belongs to the function it stands in, not to its block: of what both branches of an If share, the printer defines
`%n` in the first and refers to it in the second. A reference from where the binding is not seen copies the binding, and
those that it needs, to the block of the reference; all is pure, so only work is doubled.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass

from fusion.errors import RelayTextError
from fusion.frontends.relay.syntax import Binding, Expression, Parameter, Position, Reference

_MOST_COPIED = 50_000
"""Nodes of the tree that a text may copy: copies in copies double with each level."""
_NO_NAMES = ("attributes", "position")
_INDICES = re.compile(r"(?:\.\d{1,9})+")


@dataclass
class NameScope:
    """A block, a pair of parentheses or a function's parameters.

    Attributes:
        braces: Whether bindings may be added to it in any case; in parentheses only where it has some.
    """

    braces: bool
    names: set[str] = field(default_factory=set)
    bindings: list[Binding] = field(default_factory=list)


class Scopes:
    """The scopes around the place that is being read.

    Args:
        error: Makes the error of a name at its place.
    """

    def __init__(self, error: Callable[[str, Position], RelayTextError]) -> None:
        self._error = error
        self._stack: list[NameScope] = []
        self._graph: dict[str, Binding] = {}
        self._copied = 0

    def enter_global(self) -> None:
        """Begin a global function: `%n` of those before are not seen."""
        self._stack.clear()
        self._graph.clear()

    def enter(self, *, braces: bool = True) -> None:
        """Begin a scope."""
        self._stack.append(NameScope(braces))

    def leave(self) -> tuple[Binding, ...]:
        """End a scope and return its bindings."""
        return tuple(self._stack.pop().bindings)

    def bind_parameter(self, name: str, position: Position) -> None:
        """Add a parameter; two of a function must not have the same name."""
        if name in self._stack[-1].names:
            raise self._error(f"a second parameter is called %{name}", position)
        self._stack[-1].names.add(name)

    def bind_local(self, name: str) -> None:
        """Add a name that `let` binds; it may hide another."""
        self._stack[-1].names.add(name)

    def bind_graph(self, name: str, value: Expression, position: Position) -> None:
        """Add `%n = value;`, which must be the only one of its function."""
        if name in self._graph:
            raise self._error(f"%{name} is bound twice", position)
        self._stack[-1].names.add(name)
        self.append(name, value, position)
        self._graph[name] = self._stack[-1].bindings[-1]

    def append(self, name: str, value: Expression, position: Position) -> None:
        """Add a binding to the innermost scope."""
        self._stack[-1].bindings.append(Binding(name, value, position))

    def split(self, name: str, position: Position) -> tuple[str, list[int]]:
        """Return the longest name that is bound and begins `name`, and the indices behind it: `x.0` may be both."""
        end = len(name)
        while end > 0:
            indices = name[end:]
            if self._sees(name[:end]) and (not indices or _INDICES.fullmatch(indices)):
                return name[:end], [int(index) for index in indices.split(".")[1:]]
            end = name.rfind(".", 0, end)
        raise self._error(f"nothing binds %{name}", position)

    def use_graph(self, name: str, position: Position) -> None:
        """Make sure that `%n` is seen here."""
        if self._sees(name):
            return
        if name not in self._graph:
            raise self._error(f"nothing before binds %{name}", position)
        place = next((scope for scope in reversed(self._stack) if scope.braces or scope.bindings), self._stack[0])
        for needed in self._needed(name, position):
            place.names.add(needed.name)
            place.bindings.append(needed)

    def _sees(self, name: str) -> bool:
        return any(name in scope.names for scope in self._stack)

    def _needed(self, name: str, position: Position) -> list[Binding]:
        """Return the binding of `%name` behind those it refers to that are not seen here, each once."""
        found: dict[str, Binding] = {}
        work = [(name, False)]
        while work:
            current, complete = work.pop()
            if complete:
                found[current] = self._graph[current]
            elif current not in found and not self._sees(current):
                if current not in self._graph:
                    raise self._error(f"%{name} is not seen here, nor is %{current}, which it refers to", position)
                work.append((current, True))
                work += [(used, False) for used in self._free_names(self._graph[current].value, position)]
        return list(found.values())

    def _free_names(self, value: object, position: Position) -> Iterator[str]:
        """Return the names that `value`, which will be copied, refers to and does not bind itself."""
        bound: set[str] = set()
        used: list[str] = []
        work = [value]
        while work:
            node = work.pop()
            self._copied += 1
            if self._copied > _MOST_COPIED:
                raise self._error("branches share too much that stands in others", position)
            if isinstance(node, Reference):
                used.append(node.name)
            elif isinstance(node, tuple):
                work.extend(node)
            elif is_dataclass(node):
                if isinstance(node, (Binding, Parameter)):
                    bound.add(node.name)
                work.extend(getattr(node, part.name) for part in fields(node) if part.name not in _NO_NAMES)
        return (name for name in used if name not in bound)
