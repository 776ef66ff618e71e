"""Improves the greedy partition where one join prevented a better one.

```
the greedy partition                                     [sum, sqrt] [mean, divide, multiply, add] [matmul]
`sqrt -> mean` and `add -> matmul` could have been fused, so these three groups are a contested region;
of its partitions, that which saves most memory traffic  [sum] [sqrt, mean, divide] [multiply, add, matmul]
```
"""

from __future__ import annotations

from collections.abc import Sequence

from partition.dataflow import DataflowNode, Groups
from partition.patterns import ContestedRegion
from partition.profitability import ProfitabilityCache, Structure, structure_of
from partition.regions import Edge, find_regions

_MOST_PARTS = 512
"""How many parts the distinct regions of a module may have in all; each takes 1 to 2 ms. swin_t has 141, the most of
the zoo."""

_Places = list[list[int]]
"""For each group of a region, the positions of its nodes among those of the region."""


def explore(groups: Groups, kept: Sequence[Edge], profitability: ProfitabilityCache, start_bytes: int) -> list[Edge]:
    """Repartition the contested regions of `groups`, in place. Regions that differ only in names are searched once.

    Args:
        kept: The edges between groups, with the reasons why they were not fused.
        start_bytes: The cost of starting a kernel, in bytes of memory traffic.

    Returns:
        The edges between groups that are new.
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
