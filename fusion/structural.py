"""tvm_ffi's walks and rewrites of trees by node types, without what they find out anew at each call.

tvm_ffi resolves the type of each callback, and for mutations inspects its signature, whenever one of its functions is
called. Most of our trees are single expressions, and MobileViT needs 20,000 calls: 1.9 of the 5.4 s that Python took to
compile it.
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
    """Call the first of `visits` whose kinds a node is of, for each node of `root`, children first."""
    _walk(root, list(_by_index(visits)), [], int(WalkOrder.POSTORDER))


def find(root: Any, kinds: Kinds) -> list[Any]:
    """Return the nodes of these kinds in `root`, children first."""
    found: list[Any] = []
    walk(root, (kinds, found.append))
    return found


def contains(root: Any, *tests: tuple[Kinds, Callable[[Any], bool]]) -> bool:
    """Return whether any node of `root` passes the first of `tests` for its kind; the first that does ends the walk."""
    visits = [(kinds, lambda node, test=test: _FOUND if test(node) else None) for kinds, test in tests]
    return _walk(root, list(_by_index(visits)), [], int(WalkOrder.POSTORDER)) is not None


def map_nodes(root: Any, *replacements: tuple[Kinds, Visit]) -> Any:
    """Return `root` with each node as the first of `replacements` for its kind returns it, children first.

    What one of these raises is raised once the map is over: where it goes through tvm_ffi's (0.1.14) while a child is
    another one already, memory is freed twice, and the process ends somewhere else.
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
    """Return `root` with the first matching rule applied to each node; the rule decides about the node's children."""
    return _mutate(root, [(index, rule, False) for index, rule in _by_index(rules)])


def _by_index(entries: Sequence[tuple[Kinds, Any]]) -> Iterator[tuple[int, Any]]:
    for kinds, callback in entries:
        for kind in kinds if isinstance(kinds, tuple) else (kinds,):
            yield _type_index(kind), callback


@functools.cache
def _type_index(kind: type) -> int:
    return int(TypeSchema.from_annotation(kind).origin_type_index)
