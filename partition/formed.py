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
    root: dict[Node, Node] = {}
    reads = dict.fromkeys(kernel, 0)
    stored: set[Node] = set()
    for node in kernel:
        inside = {root[source] for source in node.inputs if source in root}
        is_view = len(inside) == 1 and node.access.kind is Kind.REORDER and not node.access.moves
        root[node] = inside.pop() if is_view else node
        for source in inside:
            reads[source] += 1
        if node in outputs:
            stored.add(root[node])
    return sum(_size(node) * (count + (node not in stored)) for node, count in reads.items() if count)


def _size(node: Node) -> int:
    return prod(node.access.shape) * ((int(node.var.ty.dtype.dtype.bits) + 7) // 8)
