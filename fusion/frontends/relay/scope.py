"""The values of a Relay function under evaluation, and the names that stand for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from tvm import relax
from tvm.relax import Expr

from fusion.errors import InvalidModelError
from fusion.frontends.relay.missing import parts
from fusion.frontends.relay.syntax import Function, OperatorReference, Reference


@dataclass
class BindingScope:
    """The bindings of one block, in front of those around it.

    Attributes:
        parent: What surrounds the block; None for a global function.
        values: What its bindings have computed so far.
    """

    parent: BindingScope | None = None
    values: dict[str, Value] = field(default_factory=dict)

    def lookup(self, name: str) -> Value | None:
        """Return the value of `name`, or None where nothing binds it."""
        scope: BindingScope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.parent
        return None

    def bind(self, name: str, value: Value) -> BindingScope:
        """Return the scope in which `name` is `value`; closures over a former value of that name keep it."""
        if name in self.values:
            return BindingScope(self, {name: value})
        self.values[name] = value
        return self


@dataclass(frozen=True)
class Closure:
    """A function and the scope in which it was made."""

    function: Function
    scope: BindingScope


Value: TypeAlias = "Expr | tuple[Value, ...] | Closure | OperatorReference"
"""What an expression computes: a tensor, a tuple, a function or an operator that was not applied."""


def captured(roots: tuple[object, ...], scope: BindingScope) -> list[Expr]:
    """Return the tensors of `scope` that expressions may read, those that their closures read among them; no
    constants."""
    found: dict[Expr, None] = {}
    seen: set[tuple[int, int]] = set()
    work: list[tuple[object, BindingScope]] = [(root, scope) for root in roots]
    while work:
        node, around = work.pop()
        value = around.lookup(node.name) if isinstance(node, Reference) else None
        for leaf in leaves(value) if value is not None else ():
            if isinstance(leaf, Closure):
                key = (id(leaf.function), id(leaf.scope))
                if key not in seen:
                    seen.add(key)
                    work.append((leaf.function, leaf.scope))
            elif isinstance(leaf, relax.Var):
                found[leaf] = None
        work.extend((part, around) for part in parts(node))
    return list(found)


def leaves(value: Value) -> Iterator[Value]:
    """Yield what `value`, where it is a nested tuple, consists of, in order."""
    if isinstance(value, tuple):
        for entry in value:
            yield from leaves(entry)
    else:
        yield value


def has_more_parts(value: Value, most: int) -> bool:
    """Return whether `value` consists of more than `most` tuples and what they hold, each as often as it occurs."""
    work, seen = [value], 0
    while work and seen <= most:
        part = work.pop()
        seen += 1
        if isinstance(part, tuple):
            work.extend(part)
    return seen > most


def tensors_of(value: Value) -> list[Expr]:
    """Return the tensors of `value`, in order.

    Raises:
        InvalidModelError: A function or an operator is among them.
    """
    found = [leaf for leaf in leaves(value) if isinstance(leaf, Expr)]
    if len(found) < sum(1 for _ in leaves(value)):
        raise InvalidModelError("a result is a function where only tensors and tuples of them can be")
    return found


def rebuild(value: Value, tensors: Iterator[Expr]) -> Value:
    """Return `value` with `tensors` in place of its own, in order."""
    return tuple(rebuild(entry, tensors) for entry in value) if isinstance(value, tuple) else next(tensors)
