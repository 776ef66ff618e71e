"""Asks whether nodes should be one kernel, once for all groups that differ in names alone: those of repeated blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tvm import relax, tirx

from fusion.bindings import call_arguments
from partition.dataflow import DataflowNode
from partition.emit_groups import fused_primfunc, outputs_of

Profitability = Callable[[tirx.PrimFunc], str]
"""Says why a chain, given as the kernel it would be, is better left in parts; "" where that kernel is faster."""

Structure = tuple[tuple[str, tuple[int, ...], bool], ...]


def no_template(kernel: tirx.PrimFunc) -> str:
    """Say of every chain that no template takes it."""
    return "no template takes several products"


@dataclass
class ProfitabilityCache:
    """A cache of what `ask` says of the groups of one module, equal ones being asked about once."""

    ask: Profitability
    known: dict[Structure, str] = field(default_factory=dict, init=False)

    def why_not_fused(self, nodes: Sequence[DataflowNode]) -> str:
        """Return why `nodes` are better left in several kernels; "" where one is faster."""
        kernel = sorted(nodes, key=lambda node: node.index)
        key = structure_of(kernel)
        if key not in self.known:
            self.known[key] = self.ask(fused_primfunc(kernel))
        return self.known[key]


def structure_of(kernel: Sequence[DataflowNode]) -> Structure:
    """Return what `fused_primfunc` depends on: functions called, which arguments are the same, what is read outside."""
    places: dict[relax.Expr, int] = {}
    outputs = set(outputs_of(kernel))
    found = []
    for node in kernel:
        arguments = tuple(places.setdefault(argument, len(places)) for argument in call_arguments(node.value))
        places[node.var] = len(places)
        found.append((node.name, arguments, node in outputs))
    return tuple(found)
