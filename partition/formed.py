"""Records of the groups, and of the edges between them, for reports and for other sizes of the same graph."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import prod

from fusion.declined import Declined
from partition.access import MappingKind
from partition.dataflow import DataflowNode, Groups


@dataclass(frozen=True)
class Formed:
    """A group that became one call.

    Attributes:
        variable: The name of the variable that the call is bound to.
        members: The names of the variables that its members were bound to.
        places: The indices of its members in the order of execution.
        saved: The memory traffic that fusing them saves, in bytes; see `saved_bytes`.
    """

    variable: str
    members: tuple[str, ...]
    places: tuple[int, ...]
    saved: int


@dataclass(frozen=True)
class Kept:
    """An edge between two groups, whose tensor goes through memory.

    Attributes:
        producer, consumer: The names of the PrimFuncs of the two nodes.
        reason: Why the two were not fused.
        source, target: The names of the variables that their results are bound to.
    """

    producer: str
    consumer: str
    reason: str
    source: str
    target: str

    @classmethod
    def of(cls, producer: DataflowNode, consumer: DataflowNode, reason: str) -> Kept:
        """Return the edge between two nodes."""
        return cls(producer.name, consumer.name, reason, producer.var.name, consumer.var.name)


@dataclass(frozen=True)
class Grouping:
    """The groups of a module, each of which became one call, and the edges that were not fused.

    Attributes:
        formed: The groups.
        kept: The edges between them.
        places: For each group, the indices of its members in the order of execution.
    """

    formed: tuple[Formed, ...] = ()
    kept: tuple[Kept, ...] = ()
    places: tuple[tuple[int, ...], ...] = ()

    def of(self, nodes: Sequence[DataflowNode]) -> Groups:
        """Return the same groups for the nodes of a graph that differs only in sizes.

        Raises:
            Declined: It has another number of nodes.
        """
        if len(nodes) != 1 + max((place for group in self.places for place in group), default=-1):
            raise Declined("the graph has another number of nodes at other sizes")
        groups = Groups(nodes)
        for group in self.places:
            groups.merge(*(nodes[place] for place in group))
        return groups


def saved_bytes(kernel: Sequence[DataflowNode], outputs: Collection[DataflowNode]) -> int:
    """Return how many bytes fewer a kernel reads and writes than its members would as kernels of their own.

    A value that only members read saves its store and all its loads; one that is also an output saves the members'
    loads. A reshape that moves nothing counts as the value that it reshapes.
    """
    reads = {node: 0 for node in kernel if node.access.kind is not MappingKind.REORDER or node.access.moves}
    root: dict[DataflowNode, DataflowNode] = {}
    for node in kernel:
        inside = {root[source] for source in node.inputs if source in root}
        root[node] = node if node in reads else next(iter(inside), node)
        for source in inside & reads.keys() if node in reads else ():
            reads[source] += 1
    stored = {root[node] for node in outputs}
    return sum(_size(node) * (count + (node not in stored)) for node, count in reads.items() if count)


def _size(node: DataflowNode) -> int:
    return prod(node.access.shape) * ((int(node.var.ty.dtype.dtype.bits) + 7) // 8)
