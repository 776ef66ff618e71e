"""What every frontend hands to the pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import tvm
from tvm import relax

from fusion.signature import FallbackNode, TensorSpec

__all__ = ["BRANCH", "FallbackNode", "ImportedModel", "TensorSpec", "branch_call"]


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
            `R.call_pure_packed("fusion.fallback", R.str(key), *inputs)`; `backends.onnxruntime.fallback.register`
            must have been called with key and bytes before.
        fallbacks: The nodes in those subgraphs.
        branches: Modules whose `main` computes one branch of a condition that only the run knows, by name, inner
            branches before those they are in. A `main` chooses one as `branch_call` says.
    """

    mod: tvm.IRModule | None
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    subgraphs: dict[str, bytes] = field(default_factory=dict)
    fallbacks: tuple[FallbackNode, ...] = ()
    branches: dict[str, tvm.IRModule] = field(default_factory=dict)


BRANCH = "fusion.branch"
"""Stands for an If as long as the graph is one block of dataflow; `inline_branches` replaces it."""


def branch_call(
    condition: relax.Expr, then: str, otherwise: str, arguments: Sequence[relax.Expr], kind: tvm.ir.Type
) -> relax.Call:
    """Return the call that stands for `if condition: then(*arguments) else: otherwise(*arguments)`.

    Args:
        condition: A bool tensor of rank 0.
        then, otherwise: Names of branches that take `arguments` and return a value of type `kind`.
    """
    names = (tvm.ir.StringImm(then), tvm.ir.StringImm(otherwise))
    return relax.op.call_pure_packed(BRANCH, condition, *names, *arguments, ty_args=kind)
