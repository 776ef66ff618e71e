"""What a kernel computes, whatever its variables and blocks are called: equal kernels of all models have one sum."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import tvm
from tvm import tirx

from fusion.json_graph import Node, references

_VARIABLE, _MAP = "ir.Var", "ffi.Map"
_NAMES = {_VARIABLE: "name", "s_tir.SBlock": "name_hint"}
"""The field with a name, by the type of node."""
_SYMBOL = "global_symbol"
"""The attribute with the name of the kernel."""
_SPAN = "span"


def structure_of(func: tirx.PrimFunc) -> str:
    """Return the sha256 of `func` without names. TVM raises whatever it does where that holds what has no text."""
    graph = json.loads(tvm.ir.save_json(func))
    nodes: list[Node] = graph["nodes"]
    sums = list[str]()
    variables = 0
    for node in nodes:  # each stands behind those that it refers to, in the order in which a walk first meets them
        content = _content(node, nodes, sums)
        if node["type"] == _VARIABLE:
            content, variables = [content, variables], variables + 1
        sums.append(hashlib.sha256(json.dumps([node["type"], content], sort_keys=True).encode()).hexdigest())
    return sums[int(graph["root_index"])]


def _content(node: Node, nodes: list[Node], sums: list[str]) -> Any:
    """Return the data of a node with sums in place of its references, without names."""
    data = node.get("data")
    if isinstance(data, dict):
        left_out = (_SPAN, _NAMES.get(node["type"]))
        return {key: value for key, value in {**data, **_referred(node, sums)}.items() if key not in left_out}
    if not isinstance(data, list):
        return data
    found = list({**dict(enumerate(data)), **_referred(node, sums)}.values())
    if node["type"] != _MAP:
        return found
    entries = zip(data[::2], found[::2], found[1::2], strict=True)
    return sorted((key, value) for place, key, value in entries if nodes[place].get("data") != _SYMBOL)


def _referred(node: Node, sums: list[str]) -> dict[Any, str]:
    return {key: sums[place] for key, place in references(node)}
