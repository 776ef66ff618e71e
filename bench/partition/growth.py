"""Times the partition of graphs of several shapes and sizes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log

import tvm

from bench.partition import shapes
from fusion import context
from fusion.bindings import Bindings
from partition.form_groups import FormGroups


@dataclass(frozen=True)
class GrowthPoint:
    """One graph.

    Attributes:
        shape: Name in `shapes.SHAPES`.
        operators: Calls of PrimFuncs before.
        kernels: Those after.
        seconds: CPU seconds of `FormGroups`, reading the graph and writing it back included.
    """

    shape: str
    operators: int
    kernels: int
    seconds: float


def measure(names: Sequence[str], sizes: Sequence[int]) -> Iterator[GrowthPoint]:
    """Yield a point for each shape and about each number of operators."""
    ctx = context.resolve()
    with ctx.target:
        for name in names:
            for size in sizes:
                mod = shapes.graph(name, size, ctx.compiler)
                started = time.process_time()
                after = FormGroups(ctx.compiler.why_not_fused, start_bytes=ctx.compiler.memory.start)(mod)
                yield GrowthPoint(name, _calls(mod), _calls(after), time.process_time() - started)


def _calls(mod: tvm.IRModule) -> int:
    bindings = Bindings.of(mod["main"]).all
    return sum(isinstance(binding.value, tvm.relax.Call) for binding in bindings)


def exponent(points: Sequence[GrowthPoint]) -> float | None:
    """Return the largest power of the number of operators that the time of one shape grows with, between neighbouring
    sizes that differ by a factor of 2 or more; None where no two do. 1 is linear."""
    ordered = sorted(points, key=lambda point: point.operators)
    powers = [
        log(large.seconds / small.seconds) / log(large.operators / small.operators)
        for small, large in pairwise(ordered)
        if large.operators >= 2 * small.operators > 0
    ]
    return max(powers, default=None)
