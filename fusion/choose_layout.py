"""Chooses a layout for a graph whose products may read tensors as they lie: by what its kernels cost either way.

The rules of `fusion.passes.layout.pointwise` count what is moved and which lanes stay empty. What they do not know is
how fast the kernels are that come of it, and what these take in: a product with packed weights may have tiles of AMX,
and the first convolution of an image reads that as it lies.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import tvm

from backends.backend import KernelCompiler
from fusion.bindings import Bindings, call_name, callee
from fusion.lowered_graphs import LoweredGraph
from fusion.system.abandon import checkpoint

LayoutChoice = Callable[[LoweredGraph, LoweredGraph], LoweredGraph]
"""(a graph whose products read tensors as they lie, the same with these moved) -> the one to use."""
_KERNELS = ("call_tir", "call_tir_inplace")


def with_layout(lower: Callable[[bool], LoweredGraph], choose: LayoutChoice) -> LoweredGraph:
    """Return a graph that `lower` makes, given whether products may read tensors as they lie. Mostly none does."""
    lying = lower(True)
    return choose(lying, lower(False)) if lying.reads_as_they_lie else lying


def by_estimate(compiler: KernelCompiler) -> LayoutChoice:
    """Return the choice of what takes fewer cycles by the estimates of its kernels; of what reads tensors as they lie
    where some have none, as the rules say."""

    return lambda lying, moved: min(lying, moved, key=lambda graph: _cycles(graph.grouped.mod, compiler))


def _cycles(mod: tvm.IRModule, compiler: KernelCompiler) -> float:
    """Return the estimated cycles of all calls of kernels in `main`; infinite where one has no estimate."""
    check, values = checkpoint(), Bindings.of(mod["main"]).values.values()
    calls = [callee(value) for value in values if call_name(value) in _KERNELS]
    cycles: dict[str, float] = {}
    for kernel in calls:
        if kernel.name_hint not in cycles:
            check()
            cycles[kernel.name_hint] = compiler.schedule(mod[kernel]).cycles or inf
    return sum(cycles[kernel.name_hint] for kernel in calls)
