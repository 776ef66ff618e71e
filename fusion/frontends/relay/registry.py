"""The table of translations: one function per Relay operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from tvm.relax import Expr

from fusion.frontends.relay import ops
from fusion.frontends.relay.call import Call

Translation = Callable[[Call], Expr | Sequence[Expr]]
"""Returns the operator's result, or several for an operator whose result is a tuple."""

_TRANSLATIONS: dict[str, Translation] = {}


def translates(*operators: str) -> Callable[[Translation], Translation]:
    """Enter the decorated function as the translation of `operators`, which must have none yet."""

    def enter(function: Translation) -> Translation:
        for operator in operators:
            if _TRANSLATIONS.setdefault(operator, function) is not function:
                raise ValueError(f"{operator} has a second translation, {function.__module__}.{function.__name__}")
        return function

    return enter


def translation_of(operator: str) -> Translation | None:
    """Return the translation of `operator`, or None where there is none."""
    return _table().get(operator)


def operators() -> tuple[str, ...]:
    """Return the names of all operators that have a translation, sorted."""
    return tuple(sorted(_table()))


@cache
def _table() -> dict[str, Translation]:
    """Return the table once every module of `ops` has entered its own."""
    for family in iter_modules(ops.__path__, f"{ops.__name__}."):
        import_module(family.name)
    return _TRANSLATIONS
