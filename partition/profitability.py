"""Asks whether nodes should be one kernel; groups that differ only in names, as in repeated blocks, are asked once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tvm import relax, tirx

from fusion.bindings import call_arguments
from partition.dataflow import DataflowNode
from partition.emit_groups import fused_primfunc, outputs_of

Profitability = Callable[[tirx.PrimFunc], str]
"""Fused PrimFunc -> why its parts are faster as kernels of their own; "" if the fused one is faster."""

Structure = tuple[tuple[str, tuple[int, ...], bool], ...]


def no_template(kernel: tirx.PrimFunc) -> str:
    """Refuse every kernel with several anchors."""
    return "no template takes several products"


@dataclass
class ProfitabilityCache:
    """A cache of what `ask` answers for the groups of one module, by structure."""

    ask: Profitability
    known: dict[Structure, str] = field(default_factory=dict, init=False)

    def why_not_fused(self, nodes: Sequence[DataflowNode]) -> str:
        """Return why `nodes` are faster in several kernels; "" if one is faster."""
        kernel = sorted(nodes, key=lambda node: node.index)
        key = structure_of(kernel)
        if key not in self.known:
            self.known[key] = self.ask(fused_primfunc(kernel))
        return self.known[key]


def structure_of(kernel: Sequence[DataflowNode]) -> Structure:
    """Return all that `fused_primfunc` depends on: the PrimFuncs called, which arguments are equal, which results are
    read outside."""
    places: dict[relax.Expr, int] = {}
    outputs = set(outputs_of(kernel))
    found = []
    for node in kernel:
        arguments = tuple(places.setdefault(argument, len(places)) for argument in call_arguments(node.value))
        places[node.var] = len(places)
        found.append((node.name, arguments, node in outputs))
    return tuple(found)
