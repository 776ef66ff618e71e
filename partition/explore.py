"""Looks for better partitions where joining neighbours in order stood in its own way.

```
what joining in order makes                              [sum, sqrt] [mean, divide, multiply, add] [matmul]
sqrt -> mean and add -> matmul would be one each, alone, so these three groups are a region
of it, the kernels that save most                        [sum] [sqrt, mean, divide] [multiply, add, matmul]
```
"""

from __future__ import annotations

from collections.abc import Sequence

from partition.dataflow import DataflowNode, Groups
from partition.patterns import ContestedRegion
from partition.profitability import ProfitabilityCache, Structure, structure_of
from partition.regions import Edge, find_regions

_MOST_PARTS = 512
"""Of the different regions of a module, 1 to 2 ms each. swin_t has 141, the most of the zoo."""

_Places = list[list[int]]
"""For each group which nodes of a region it has."""


def explore(groups: Groups, kept: Sequence[Edge], profitability: ProfitabilityCache, start_bytes: int) -> list[Edge]:
    """Give regions of `groups` the kernels that save most, once for all regions that differ in names alone.

    Args:
        start_bytes: What the start of a kernel is worth.

    Returns:
        The edges between the kernels that are new.
    """
    known: dict[tuple[Structure, str], _Places] = {}
    parts, between = 0, list[Edge]()
    for before in find_regions(groups, kept, profitability):
        nodes = sorted((node for group in before for node in group), key=lambda node: node.index)
        places = _places(nodes, before)
        key = structure_of(nodes), str(places)
        if key not in known:
            region = ContestedRegion.of(before, profitability, start_bytes)
            parts += len(region.parts)
            known[key] = _places(nodes, region.best_kernels()) if parts <= _MOST_PARTS else places
        after = [[nodes[place] for place in group] for group in known[key]]
        if known[key] != places and groups.regroup(before, after):
            between += _between(groups, nodes)
    return between


def _places(nodes: Sequence[DataflowNode], groups: Sequence[Sequence[DataflowNode]]) -> _Places:
    place = {node: index for index, node in enumerate(nodes)}
    return sorted([place[node] for node in group] for group in groups)


def _between(groups: Groups, nodes: Sequence[DataflowNode]) -> list[Edge]:
    edges = ((source, node) for node in nodes for source in node.inputs if source in nodes)
    parted = (edge for edge in edges if groups.of(edge[0]) is not groups.of(edge[1]))
    return [(*edge, "each saves more in another kernel") for edge in parted]
