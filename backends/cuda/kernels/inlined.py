"""Expressions with the stages that they read inside, as those who read kernels compare them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tvm import tirx
from tvm.ir import Var
from tvm.sym import Analyzer

from backends.cuda.kernels.affine import analyzer_over
from backends.tensorir.emit import Expr
from backends.tensorir.inlining import Place, Resolver
from backends.tensorir.stages import Stage, substitute


def plain_load(buffer: Var, indices: Sequence[Expr]) -> Expr:
    """Return the load of an element where it lies: the `place` of a `Resolver` whose buffers are all in memory."""
    return tirx.BufferLoad(buffer, list(indices))


def inlined(value: Expr, stages: Mapping[Var, Stage], analyzer: Analyzer, place: Place = plain_load) -> Expr:
    """Return one expression that reads memory alone: what stages make stands wherever it is read, as often as it is.

    Args:
        value: Over variables that `analyzer` knows.
        stages: By what they make.
        place: Gives the load of an element of any other buffer.
    """
    resolver = Resolver(stages, place, analyzer)
    whole = resolver.resolve(value, {})
    for var, bound in reversed(resolver.bindings):
        whole = substitute(whole, {var: bound})
    return whole


def inlined_stage(stage: Stage, stages: Mapping[Var, Stage]) -> Stage:
    """Return a stage that reads memory alone, as `inlined` does of its value."""
    return replace(stage, value=inlined(stage.value, stages, analyzer_over((*stage.spatial, *stage.reduce))))
