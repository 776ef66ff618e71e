"""Cuts kernels that need all sizes before the run into smaller ones that do not.

Families may write each operator of a group for all sizes, and not the group: a convolution whose result is stored as
rows of four numbers, say, which are of several pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import tvm_ffi
from tvm import tirx

from fusion.bindings import Bindings, callee, is_call_tir
from fusion.facts import Facts
from fusion.lowered_graphs import LoweredGraphs
from fusion.passes.concats import Placement
from partition.dataflow import DataflowNode, Groups, read_graph
from partition.emit_groups import fused_primfunc, split_views
from partition.formed import Grouping, Kept
from partition.joins import sources_of, why_not_merged
from partition.profitability import ProfitabilityCache, Structure, no_template, structure_of

WhyNotOpen = Callable[[Sequence[tirx.PrimFunc]], str]
"""Says why a kernel, given as it is at each of some sizes, needs all sizes before the run; "" where it does not."""


def cut_groups(
    seen: Sequence[LoweredGraphs], slow: Mapping[str, str], why_not_open: WhyNotOpen
) -> dict[str, Grouping] | None:
    """Return the groups of a model, by graph, with parts of those whose kernels need all sizes before the run: as large
    ones as rules of fusion and `why_not_open` allow.

    Args:
        seen: The model at some sizes.
        slow: Why each of these kernels needs them, by its name in the first of `seen`.

    Returns:
        None where each of the kernels is one operator.
    """
    found, is_cut = dict[str, Grouping](), False
    for name, graph in seen[0].graphs.items():
        grouping = graph.fact.get(Grouping)
        graphs = [read_graph(each.ungrouped[name].mod) for each in seen]
        cut = _Cut(graphs, grouping.of(graphs[0]), why_not_open)
        apart = [cut.cut(places, reason) for places, reason in _places(seen[0], name, slow)]
        kept = (*grouping.kept, *(edge for edges in apart for edge in edges))
        found[name] = Grouping(kept=kept, places=cut.groups.places)
        is_cut = is_cut or bool(apart)
    return found if is_cut else None


def are_of_parts(seen: LoweredGraphs, slow: Mapping[str, str]) -> bool:
    """Return whether one of the kernels `slow` writes, reads or copies a part of a joined tensor where that lies."""
    for name, graph in seen.graphs.items():
        placed, groups = graph.fact.get(Placement).renamed.values(), _groups(graph.fact)
        if any(var in placed or var not in groups for var, _ in _calls(seen, name, slow)):
            return True
    return False


def _places(seen: LoweredGraphs, name: str, slow: Mapping[str, str]) -> Iterator[tuple[tuple[int, ...], str]]:
    """Yield the nodes of each group of several in the graph of this name that is called as a kernel of `slow`, and why
    that is slow."""
    groups = _groups(seen.graphs[name].fact)
    for var, reason in _calls(seen, name, slow):
        if len(groups.get(var, ())) > 1:
            yield groups[var], reason


def _calls(seen: LoweredGraphs, name: str, slow: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the variables of the calls of kernels of `slow` in the graph of this name, and why these are slow."""
    graph = seen.graphs[name]
    reasons = {
        symbol: reason
        for symbol, func in graph.mod.functions.items()
        for kernel, reason in slow.items()
        if tvm_ffi.structural_equal(func, seen.mod[kernel])  # those of a branch may have another name in it
    }
    for var, value in Bindings.of(graph.mod["main"]).values.items():
        if is_call_tir(value) and callee(value) in reasons:
            yield var.name, reasons[callee(value)]


def _groups(facts: Facts) -> dict[str, tuple[int, ...]]:
    """Return the nodes of each group by the variable of its call."""
    groups = facts.get(Placement).update(facts.get(Grouping))
    return {formed.variable: formed.places for formed in groups.formed}


@dataclass
class _Cut:
    """A graph whose groups are cut.

    Attributes:
        graphs: Its nodes at each of some sizes.
        groups: Of the first of these.
    """

    graphs: Sequence[Sequence[DataflowNode]]
    groups: Groups
    why_not_open: WhyNotOpen
    _known: dict[Structure, str] = field(default_factory=dict, init=False)

    def cut(self, places: Sequence[int], reason: str) -> list[Kept]:
        """Put the nodes of these `places`, whose kernel is slow for this `reason`, into smaller groups; return the
        edges between these."""
        nodes = [self.graphs[0][place] for place in places]
        self._known[structure_of(nodes)] = reason
        self.groups.regroup([self.groups.of(nodes[0])], [])
        never = ProfitabilityCache(no_template)
        edges = []
        for node in nodes:
            for source in sources_of(node):
                if source not in nodes or self.groups.of(source) is self.groups.of(node):
                    continue
                joined = [*self.groups.of(source), *self.groups.of(node)]
                why_not = why_not_merged(self.groups, source, node, never) or self._why_not(joined)
                if why_not:
                    edges.append((source, node, why_not))
                else:
                    self.groups.merge(source, node)
        return [Kept.of(*edge) for edge in edges if self.groups.of(edge[0]) is not self.groups.of(edge[1])]

    def _why_not(self, group: Sequence[DataflowNode]) -> str:
        """Return why a kernel of these nodes needs all sizes before the run; "" where it does not."""
        kernel, _ = split_views(sorted(group, key=lambda node: node.index))
        key = structure_of(kernel)
        if len(kernel) == 1:
            return ""
        if key not in self._known:
            members = [[graph[node.index] for node in kernel] for graph in self.graphs]
            self._known[key] = self.why_not_open([fused_primfunc(each) for each in members])
        reason = self._known[key]
        return f"their kernel needs all sizes before the run: {reason}" if reason else ""
