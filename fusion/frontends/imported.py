"""What every frontend hands to the pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import tvm
from tvm import relax

from fusion.bindings import callee
from fusion.signature import FallbackNode, TensorSpec

TAKES_NOTHING = "fusion.takes_nothing"
"""Attribute of a function that a frontend writes which has a result of elements where an operand has none, as a cache
that was empty."""

__all__ = [
    "BranchCall",
    "FallbackNode",
    "ImportedModel",
    "TensorSpec",
    "branch_call",
    "names_called",
    "read_branch_call",
]


@dataclass(frozen=True)
class ImportedModel:
    """A model as Relax.

    Attributes:
        mod: Module whose `main` takes the inputs in order, all shapes static, weights as `relax.Constant`s, and
            returns one tensor or a tuple of them, in the order of `outputs`. None where the model's own inputs or
            outputs are no tensors that TVM can hold (strings, sequences, optionals): then the one entry of
            `subgraphs` is the whole model.
        inputs, outputs: The signature.
        subgraphs: ONNX bytes of each fallback subgraph by its key. `main` runs one as
            `R.call_pure_packed(RUN_SUBGRAPH, R.str(key), *inputs)`; `ModelRunner.register` must have been called with
            key and bytes before.
        fallbacks: The nodes in those subgraphs.
        branches: Modules whose `main` computes one branch of a condition that only the run knows, by name, inner
            branches before those they are in. A `main` chooses one as `branch_call` says; every one is chosen once.
        has_zero_means: Whether a mean of no elements is 0 where the model is from, and not 0 / 0.
        is_uneven: Whether what it makes of open sizes may be another thing between two at which it is the same: what is
            left of a division, or what asks whether two are one.
        asked_for: Numbers of which it asks whether a size is one.
        notes: What reports should say of the model as it was given, one sentence each.
    """

    mod: tvm.IRModule | None
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    subgraphs: Mapping[str, bytes] = field(default_factory=dict)
    fallbacks: tuple[FallbackNode, ...] = ()
    branches: Mapping[str, tvm.IRModule] = field(default_factory=dict)
    has_zero_means: bool = False
    is_uneven: bool = False
    asked_for: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()


_BRANCH = "fusion.branch"
"""Stands for an If as long as the graph is one block of dataflow; `InlineBranches` replaces it."""


class BranchCall(NamedTuple):
    """What `branch_call` was given."""

    condition: relax.Expr
    then: str
    otherwise: str
    arguments: list[relax.Expr]


def branch_call(
    condition: relax.Expr, then: str, otherwise: str, arguments: Sequence[relax.Expr], kind: tvm.ir.Type
) -> relax.Call:
    """Return the call that stands for `if condition: then(*arguments) else: otherwise(*arguments)`.

    Args:
        condition: A bool tensor of rank 0.
        then, otherwise: Names of branches that take `arguments` and return a value of type `kind`.
    """
    names = (tvm.ir.StringImm(then), tvm.ir.StringImm(otherwise))
    return relax.op.call_pure_packed(_BRANCH, condition, *names, *arguments, ty_args=kind)


def read_branch_call(value: relax.Expr) -> BranchCall | None:
    """Return the operands of a `branch_call`, or None for any other expression."""
    if not _is_packed(value) or str(callee(value).global_symbol) != _BRANCH:
        return None
    _, condition, then, otherwise, *arguments = value.args
    return BranchCall(condition, str(then.value), str(otherwise.value), arguments)


def names_called(mod: tvm.IRModule) -> set[str]:
    """Return the branches and the keys of subgraphs that `main` calls: the strings among the operands of its packed
    calls."""
    found: set[str] = set()

    def visit(expr: relax.Expr) -> None:
        if _is_packed(expr):
            found.update(str(argument.value) for argument in expr.args if isinstance(argument, tvm.ir.StringImm))

    relax.analysis.post_order_visit(mod["main"], visit)
    return found


def _is_packed(value: relax.Expr) -> bool:
    if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op):
        return False
    return str(value.op.name) == "relax.call_pure_packed" and isinstance(callee(value), relax.ExternFunc)
