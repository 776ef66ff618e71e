"""Rewrite TensorIR by rules for node types (tvm_ffi's structural mutation)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from tvm_ffi.structural import StructuralMutator, structural_mutate

Rule = Callable[[Any, StructuralMutator], Any]


class _Callback:
    """A rule with its signature at hand: tvm_ffi inspects each callback on each call, which took half of our time."""

    __signature__ = inspect.signature(lambda value, mutator: None)

    def __init__(self, rule: Rule) -> None:
        self._rule = rule

    def __call__(self, value: Any, mutator: StructuralMutator) -> Any:
        return self._rule(value, mutator)


def mutate(root: Any, rules: Sequence[tuple[type, Rule]]) -> Any:
    """Return `root` with the first matching rule applied to each node; the rule decides about the node's children."""
    return structural_mutate(root, [(kind, _Callback(rule)) for kind, rule in rules])
