"""One function with symbols of what passes made of a model at several sizes.

A model goes through the same passes at every size, and where they choose alike, the results differ in numbers only.
Each number is a node of the JSON that TVM writes of a function: functions of one structure are compared node by node,
and a number that differs becomes the expression that `fit` finds for it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import tvm
from tvm import relax, tirx

from fusion.declined import Declined
from fusion.symbolic.extents import Extent, Sizes, fit

Node = dict[str, Any]
Func = TypeVar("Func", relax.Function, tirx.PrimFunc)
_NUMBER, _CONSTANT = "int", "ir.IntImm"
_LITERALS = frozenset({"ndim", "iter_type", "index", "kind"})
"""Fields that hold a number itself and not the place of its node."""


def unify(funcs: Sequence[Func], probes: Sequence[Sizes]) -> Func:
    """Return the function that is each of `funcs` at the sizes of the same place in `probes`.

    Its symbols are int64 variables of their names, which only it has.

    Raises:
        Declined: The functions differ in more than numbers, or in a number that is no expression of the sizes.
    """
    graphs = [json.loads(tvm.ir.save_json(func)) for func in funcs]
    if len({len(graph["nodes"]) for graph in graphs}) > 1:
        raise Declined("passes made another structure of it at other sizes")
    nodes: list[Node] = graphs[0]["nodes"]
    numbers = {}
    for place, (node, *others) in enumerate(zip(*(graph["nodes"] for graph in graphs), strict=True)):
        if any(other != node for other in others):
            if {each["type"] for each in (node, *others)} != {_NUMBER}:
                raise Declined(f"passes made another {node['type']} of it at other sizes")
            numbers[place] = fit([each["data"] for each in (node, *others)], probes)
    if not numbers:
        return funcs[0]
    _Writer(nodes).replace(numbers)
    return tvm.ir.load_json(json.dumps(graphs[0]))


@dataclass
class _Writer:
    """Writes expressions into the JSON of a function."""

    nodes: list[Node]
    _variables: dict[str, int] = field(default_factory=dict, init=False)

    def replace(self, numbers: Mapping[int, Extent]) -> None:
        """Put the expression of each of `numbers`, by the place of its node, where a constant had it.

        Raises:
            Declined: Something else than a constant of TensorIR has it.
        """
        readers = list(self.nodes)
        moved = {}
        for place, node in enumerate(readers):
            read = numbers.keys() & {node["data"][key] for key in _references(node)}
            if read and node["type"] != _CONSTANT:
                raise Declined(f"a {node['type']} holds a number that depends on the open sizes")
            if read:
                moved[place] = self._expression(numbers[read.pop()], node["data"]["ty"])
        for node in readers:
            data: Any = node.get("data")
            for key in _references(node):
                data[key] = moved.get(data[key], data[key])

    def _expression(self, extent: Extent, kind: int) -> int:
        wide = self._add("ir.PrimType", span=0, dtype="int64")
        result = self._variable(extent.symbols[0], wide)
        for symbol in extent.symbols[1:]:
            result = self._add("prim.Mul", span=0, ty=wide, a=result, b=self._variable(symbol, wide))
        if extent.coefficient != 1:
            result = self._add("prim.Mul", span=0, ty=wide, a=result, b=self._constant(extent.coefficient, wide))
        if extent.constant:
            result = self._add("prim.Add", span=0, ty=wide, a=result, b=self._constant(extent.constant, wide))
        narrow = self.nodes[kind]["data"]["dtype"] != "int64"
        return self._add("prim.Cast", span=0, ty=kind, value=result) if narrow else result

    def _variable(self, name: str, kind: int) -> int:
        if name not in self._variables:
            self._variables[name] = self._add("ir.Var", span=0, ty=kind, name=self._literal("ffi.String", name))
        return self._variables[name]

    def _constant(self, value: int, kind: int) -> int:
        return self._add(_CONSTANT, span=0, ty=kind, value=self._literal(_NUMBER, value))

    def _literal(self, kind: str, value: object) -> int:
        self.nodes.append({"type": kind, "data": value})
        return len(self.nodes) - 1

    def _add(self, kind: str, **data: Any) -> int:
        return self._literal(kind, data)


def _references(node: Node) -> list[Any]:
    """Return the keys, or places, of what in `node` is the place of another node."""
    data = node.get("data")
    if isinstance(data, dict):
        return [key for key, value in data.items() if type(value) is int and key not in _LITERALS]
    return [place for place, value in enumerate(data) if type(value) is int] if isinstance(data, list) else []
