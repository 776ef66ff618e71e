"""Drawn operators as kernels, and which points of their spaces are measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm
from tvm.ir import Constant

from backends.tensorir.space import Point, Space
from fusion.bindings import Bindings, call_arguments, callee, is_call_tir
from fusion.context import Context
from fusion.measuring import kernels_of
from fusion.pipeline import lower_graph
from tuning.alone import SpaceQuestion
from tuning.known import Knowledge, KnownKernel
from tuning.task import ALONE
from tuning.workloads import Workload


@dataclass(frozen=True)
class DrawnKernel:
    """The kernel of a workload that is estimated to take the most time of it."""

    workload: Workload
    question: SpaceQuestion


def drawn_kernels(workloads: Sequence[Workload], ctx: Context, most: int) -> Iterator[DrawnKernel]:
    """Yield the kernels that have a space, with `most` points of it at most; each kernel once."""
    knowledge, seen = Knowledge.of(None, ctx.compiler), set[str]()
    for workload in workloads:
        mod = lower_graph(workload.module(), ctx).mod
        funcs, weights = kernels_of(mod), _weights(mod)
        spaces = {name: _alone(kernel) for name, kernel in knowledge.kernels(funcs).items() if _default(kernel).cycles}
        name = max(spaces, key=lambda name: _default(spaces[name]).cycles, default=None)
        if name is None or spaces[name].task.key in seen:
            continue
        seen.add(spaces[name].task.key)
        points = _points(spaces[name].choices.space, most, len(seen))
        if points:
            question = SpaceQuestion(funcs[name], spaces[name], weights.get(name, frozenset()), points)
            yield DrawnKernel(workload, question)


def _points(space: Space[Point], most: int, seed: int) -> list[Point]:
    """Return at most `most` points beside the default: where there are more, half are the best by estimate, and half
    are drawn, as nobody could say of tables how much they miss by what they would have taken anyway."""
    points = sorted((point for point in space if point != space.default), key=lambda point: point.cycles)
    if len(points) <= most:
        return points
    best, rest = points[: most // 2], points[most // 2 :]
    chosen = np.random.default_rng(seed).choice(len(rest), most - len(best), replace=False)
    return [*best, *(rest[place] for place in sorted(chosen))]


def _alone(kernel: KnownKernel) -> KnownKernel:
    """Return it with the question what its points take without a network: who measures in one has not answered that,
    nor the other way round."""
    return replace(kernel, task=replace(kernel.task, kind=ALONE))


def _default(kernel: KnownKernel) -> Point:
    default: Point = kernel.choices.space.default
    return default


def _weights(mod: tvm.IRModule) -> dict[str, frozenset[int]]:
    """Return which arguments of each kernel are constants."""
    calls = (value for value in Bindings.of(mod["main"]).values.values() if is_call_tir(value))
    return {str(callee(call).name_hint): _constants(call_arguments(call)) for call in calls}


def _constants(arguments: Sequence[Any]) -> frozenset[int]:
    return frozenset(place for place, argument in enumerate(arguments) if isinstance(argument, Constant))
