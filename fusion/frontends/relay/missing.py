"""What a module calls that no translation exists for, found before anything is translated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from fusion.errors import UnsupportedOperatorError
from fusion.frontends.relay.registry import translation_of
from fusion.frontends.relay.syntax import Expression, GlobalReference, OperatorCall, Position, RelayModule


def refuse_missing(module: RelayModule) -> None:
    """Check that every operator that `main` may reach has a translation.

    Raises:
        UnsupportedOperatorError: Some have none; each is named with its calls and where the first stands.
    """
    missing: dict[str, list[Position]] = {}
    for call in _operator_calls(module):
        if translation_of(call.operator) is None:
            missing.setdefault(call.operator, []).append(call.position)
    if not missing:
        return
    named = (
        f"{operator} ({len(places)} call{'s' if len(places) > 1 else ''}, first at {min(places)})"
        for operator, places in sorted(missing.items())
    )
    calls = sum(map(len, missing.values()))
    raise UnsupportedOperatorError(
        f"{calls} call{'s' if calls > 1 else ''} of operators without a translation: {', '.join(named)}",
        where=str(min(min(places) for places in missing.values())),
        why="fusion has no translation of them to Relax",
        hint="docs/relay_operators.md lists the operators that have one",
    )


def _operator_calls(module: RelayModule) -> Iterator[OperatorCall]:
    seen = {"main"}
    work: list[object] = [module.functions["main"]]
    while work:
        node = work.pop()
        if isinstance(node, GlobalReference) and node.name in module.functions and node.name not in seen:
            seen.add(node.name)
            work.append(module.functions[node.name])
        if isinstance(node, OperatorCall):
            yield node
        work.extend(parts(node))


def parts(node: object) -> Iterator[object]:
    """Yield what `node` of the tree consists of: expressions, bindings and blocks."""
    if isinstance(node, tuple):
        yield from node
    elif isinstance(node, Expression) or (is_dataclass(node) and not isinstance(node, type)):
        for entry in fields(node):
            value = getattr(node, entry.name)
            if isinstance(value, tuple) or is_dataclass(value):
                yield value
