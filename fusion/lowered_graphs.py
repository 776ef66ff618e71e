"""A model before its kernels have loops: the graphs it consists of, and all of them joined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import tvm

from fusion.facts import Facts, PassResult
from fusion.passes.concats import Placement
from fusion.passes.layout import StoredIn
from partition.formed import Grouping


@dataclass(frozen=True)
class LoweredGraph:
    """A graph by itself, the model or a branch, before it is joined with others and its kernels have loops.

    Attributes:
        ungrouped: With a PrimFunc for each operator.
        grouped: With one for each kernel, and what all passes reported.
    """

    ungrouped: PassResult[Facts]
    grouped: PassResult[Facts]

    @property
    def reads_as_they_lie(self) -> bool:
        """Whether a product reads a tensor as it lies that could be moved."""
        return bool(self.grouped.fact.get(StoredIn).as_they_lie)


@dataclass(frozen=True)
class LoweredGraphs:
    """A model before its kernels are scheduled.

    Attributes:
        mod: Its PrimFuncs and the calls between them.
        alone: `MAIN` and each branch by itself, before they were joined.
    """

    mod: tvm.IRModule
    alone: Mapping[str, LoweredGraph]

    @property
    def graphs(self) -> dict[str, PassResult[Facts]]:
        """Each graph by itself, with what the passes reported."""
        return {name: graph.grouped for name, graph in self.alone.items()}

    @property
    def ungrouped(self) -> dict[str, PassResult[Facts]]:
        """The same before grouping, with a PrimFunc for each operator."""
        return {name: graph.ungrouped for name, graph in self.alone.items()}

    @property
    def lying(self) -> dict[str, bool]:
        """For each graph, whether products read tensors as they lie."""
        return {name: graph.reads_as_they_lie for name, graph in self.alone.items()}

    @property
    def groups(self) -> dict[str, Grouping]:
        """For each graph, the groups that became kernels."""
        return {name: graph.fact.get(Grouping) for name, graph in self.graphs.items()}

    @property
    def joins_in_place(self) -> bool:
        """Whether kernels write parts of concatenations in place."""
        return any(graph.fact.get(Placement).renamed for graph in self.graphs.values())
