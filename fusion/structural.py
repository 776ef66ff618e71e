"""tvm_ffi's walks and rewrites of trees by node type, without their overhead at each call.

tvm_ffi resolves the node type of each callback, and for mutations inspects its signature, whenever one of its functions
is called. Most trees here are single expressions, and MobileViT needs 20,000 calls: that was 1.9 of the 5.4 s that
Python took to compile it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tvm_ffi
from tvm_ffi.core import TypeSchema
from tvm_ffi.structural import StructuralMutator, VisitInterrupt, WalkOrder

Kinds = type | tuple[type, ...]
Visit = Callable[[Any], Any]
Rule = Callable[[Any, StructuralMutator], Any]

_walk = tvm_ffi.get_global_func("ffi.StructuralWalk")
_map = tvm_ffi.get_global_func("ffi.StructuralMap")
_mutate = tvm_ffi.get_global_func("ffi.StructuralMutate")

_FOUND = VisitInterrupt()


def walk(root: Any, *visits: tuple[Kinds, Visit]) -> None:
    """For each node of `root`, children first, call the first of `visits` for its kind."""
    _walk(root, list(_by_index(visits)), [], int(WalkOrder.POSTORDER))


def find(root: Any, kinds: Kinds) -> list[Any]:
    """Return the nodes of these kinds in `root`, children first."""
    found: list[Any] = []
    walk(root, (kinds, found.append))
    return found


def contains(root: Any, *tests: tuple[Kinds, Callable[[Any], bool]]) -> bool:
    """Return whether a node of `root` passes the first of `tests` for its kind. The walk ends with the first that
    does."""
    visits = [(kinds, lambda node, test=test: _FOUND if test(node) else None) for kinds, test in tests]
    return _walk(root, list(_by_index(visits)), [], int(WalkOrder.POSTORDER)) is not None


def map_nodes(root: Any, *replacements: tuple[Kinds, Visit]) -> Any:
    """Return `root` with each node, children first, replaced by the first of `replacements` for its kind.

    An exception of these is raised only after the map has ended: if it passes through tvm_ffi (0.1.14) when a child was
    replaced already, memory is freed twice, and the process crashes later.
    """
    raised: list[BaseException] = []

    def guarded(replace: Visit) -> Visit:
        def call(node: Any) -> Any:
            if raised:
                return node
            try:
                return replace(node)
            except BaseException as error:
                raised.append(error)
                return node

        return call

    visits = [(index, guarded(replace)) for index, replace in _by_index(replacements)]
    mapped = _map(root, visits, [], int(WalkOrder.POSTORDER))
    if raised:
        raise raised.pop()
    return mapped


def mutate(root: Any, rules: Sequence[tuple[Kinds, Rule]]) -> Any:
    """Return `root` with the first matching rule applied to each node, from the root; the rule visits the children, or
    not."""
    return _mutate(root, [(index, rule, False) for index, rule in _by_index(rules)])


def _by_index(entries: Sequence[tuple[Kinds, Any]]) -> Iterator[tuple[int, Any]]:
    for kinds, callback in entries:
        for kind in kinds if isinstance(kinds, tuple) else (kinds,):
            yield _type_index(kind), callback


@functools.cache
def _type_index(kind: type) -> int:
    return int(TypeSchema.from_annotation(kind).origin_type_index)
