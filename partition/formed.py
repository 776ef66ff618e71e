"""What became of each group, for reports."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import prod

from partition.access import Kind
from partition.dataflow import Node


@dataclass(frozen=True)
class Formed:
    """A group that became one call.

    Attributes:
        variable: Name of the variable that the call is bound to.
        members: Names of those that its members were bound to.
        saved: Bytes that need not go through memory any more; see `saved_bytes`.
    """

    variable: str
    members: tuple[str, ...]
    saved: int


def saved_bytes(kernel: Sequence[Node], outputs: Collection[Node]) -> int:
    """Return how many bytes less a kernel writes and reads than its members would, one by one.

    A value that only members read is neither written nor read by each of them; of one that others read too, the
    members' reads are saved. A reshape that moves nothing counts as what it reshapes.
    """
    reads = {node: 0 for node in kernel if node.access.kind is not Kind.REORDER or node.access.moves}
    root: dict[Node, Node] = {}
    for node in kernel:
        inside = {root[source] for source in node.inputs if source in root}
        root[node] = node if node in reads else next(iter(inside), node)
        for source in inside & reads.keys() if node in reads else ():
            reads[source] += 1
    stored = {root[node] for node in outputs}
    return sum(_size(node) * (count + (node not in stored)) for node, count in reads.items() if count)


def _size(node: Node) -> int:
    return prod(node.access.shape) * ((int(node.var.ty.dtype.dtype.bits) + 7) // 8)
