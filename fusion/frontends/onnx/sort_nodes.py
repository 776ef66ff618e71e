"""Puts the nodes of a graph into topological order, which files in the wild do not always keep."""

from __future__ import annotations

import onnx

from fusion.errors import InvalidModelError
from fusion.frontends.onnx.expand import reads


def sort_nodes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return `model`, or a copy whose nodes are sorted where they were not.

    Raises:
        InvalidModelError: The graph has a cycle.
    """
    order = _sorted_indices(list(model.graph.node))
    if order == list(range(len(order))):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.node[:]
    copy.graph.node.extend(model.graph.node[index] for index in order)
    return copy


def _sorted_indices(nodes: list[onnx.NodeProto]) -> list[int]:
    producer = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    waits = [{producer[name] for name in reads(node) if name in producer} for node in nodes]
    users: list[list[int]] = [[] for _ in nodes]
    for index, needed in enumerate(waits):
        for source in needed:
            users[source].append(index)
    ready = [index for index, needed in enumerate(waits) if not needed]
    order: list[int] = []
    while ready:
        order.extend(ready)
        ready = sorted(user for index in ready for user in users[index] if _arrived(waits[user], index))
    if len(order) < len(nodes):
        raise _cycle(nodes, set(order))
    # Files already in order keep it: names in reports then follow the file.
    in_order = all(
        source < index
        for index, node in enumerate(nodes)
        for source in (producer[name] for name in reads(node) if name in producer)
    )
    return list(range(len(nodes))) if in_order else order


def _arrived(waiting: set[int], index: int) -> bool:
    waiting.discard(index)
    return not waiting


def _cycle(nodes: list[onnx.NodeProto], placed: set[int]) -> InvalidModelError:
    stuck = [node for index, node in enumerate(nodes) if index not in placed]
    first = stuck[0]
    return InvalidModelError(
        "the graph has a cycle",
        where=f"{first.op_type} {first.name or first.output[0]!r}",
        why=f"{len(stuck)} nodes wait for each other's outputs",
        hint="ONNX graphs are acyclic; export the model again",
    )
