"""One function with symbols of what passes made of a model at several sizes.

A model goes through the same passes at every size, and where they choose alike, the results differ in numbers only.
Functions are compared node by node in the JSON that TVM writes of them, and a number that differs becomes the
expression that `fit` finds for it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm_ffi.serialization import from_json_graph_str

from backends.tensorir.legalize.sums import COUNTS
from fusion.declined import Declined
from fusion.extents import DerivedSize, Extent
from fusion.json_graph import Node, references
from fusion.symbolic.fit import Fit

Ratio = tuple[tuple[Extent, ...], Extent]
"""The product of some extents divided by another."""
_NUMBER, _CONSTANT, _FLOAT, _BLOCK, _DIVIDE = "int", "ir.IntImm", "ir.FloatImm", "s_tir.SBlock", "prim.Div"
_MOST_EXACT = 2**53
"""Beyond it not every whole number is a float64."""


def unify(texts: Sequence[FunctionText], fit: Fit) -> Unified:
    """Return what functions have in common of which each is the one at the sizes of its place in the probes of `fit`.

    Raises:
        Declined: They differ in more than numbers, or in a number that is no expression of the sizes.
    """
    first = texts[0]
    for text in texts[1:]:
        if len(text.nodes) != len(first.nodes):
            raise Declined("passes made another structure of it at other sizes")
        if text.nodes != first.nodes:
            kind = next(node["type"] for node, other in zip(first.nodes, text.nodes, strict=True) if node != other)
            raise Declined(f"passes made another {kind} of it at other sizes")
    extents = _extents(list(zip(*(text.numbers for text in texts), strict=True)), fit)
    ratios = tuple(_ratio(row, fit) for row in zip(*(text.floats for text in texts), strict=True))
    return Unified(first, extents, ratios)


def _extents(rows: Sequence[Sequence[int]], fit: Fit) -> tuple[Extent, ...]:
    """Return what the numbers of a function are, which are of the symbols that are numbers of it, or in those that the
    model has too: a row of 160 channels of an image that is half as wide as another is also 80 times as long as that is
    wide, at even sizes."""
    found = tuple(map(fit.extent, rows))
    sizes = {Extent(0, 1, (name,)) for name in fit.probes[0]}.union(fit.known)
    own = {symbol for extent in sizes.intersection(found) for symbol in extent.symbols}
    return tuple(fit.extent_of(own, row) for row in rows)


def _ratio(values: Sequence[float], fit: Fit) -> Ratio | None:
    """Return what floats are the ratio of; None of a float that is the same at all sizes."""
    if len(set(map(repr, values))) == 1:
        return None
    if all(1 <= value < _MOST_EXACT and value.is_integer() for value in values):
        return fit.product([int(value) for value in values]), Extent(1)
    above, below = fit.ratio(values)
    return (above,), below


@dataclass(frozen=True)
class FunctionText:
    """A function as JSON, its numbers apart.

    TVM writes numbers that are equal as one node, whatever they mean: here each reader has its own.

    Attributes:
        func: The function.
        root: Its place among the nodes.
        nodes: All but the numbers, of which readers have none.
        numbers: What is read, in order.
        readers: The place of the node that reads each of them, and the key of the field or position.
        floats: Those of TensorIR, among which are numbers of elements, by which a mean divides their sum, and how far
            pixels that are read for the next one lie apart.
        places: The place of each.
    """

    func: tvm.ir.BaseFunc
    root: int
    nodes: tuple[Node, ...]
    numbers: tuple[int, ...]
    readers: tuple[tuple[int, Any], ...]
    floats: tuple[float, ...]
    places: tuple[int, ...]

    @classmethod
    def of(cls, func: tvm.ir.BaseFunc) -> FunctionText:
        """Return what TVM writes of `func`."""
        graph = json.loads(tvm.ir.save_json(func))
        found: list[Node] = graph["nodes"]
        kept = [place for place, node in enumerate(found) if node["type"] != _NUMBER]
        at = {place: number for number, place in enumerate(kept)}
        nodes = tuple(found[place] for place in kept)
        numbers, readers, floats, places = list[int](), list[tuple[int, Any]](), list[float](), list[int]()
        for number, node in enumerate(nodes):
            data: Any = node.get("data")
            for key, place in references(node):
                if place in at:
                    data[key] = at[place]
                else:
                    data[key] = None
                    numbers.append(found[place]["data"])
                    readers.append((number, key))
            if node["type"] == _FLOAT:
                floats.append(float(data["value"]))
                places.append(number)
                data["value"] = None
        return cls(
            func, at[graph["root_index"]], nodes=nodes, numbers=tuple(numbers), readers=tuple(readers),
            floats=tuple(floats), places=tuple(places),
        )  # fmt: skip


@dataclass(frozen=True)
class Unified:
    """What functions at several sizes have in common.

    Attributes:
        text: The first of them.
        extents: What each of its numbers is at all sizes.
        ratios: What each of its floats is that depends on them.
    """

    text: FunctionText
    extents: tuple[Extent, ...]
    ratios: tuple[Ratio | None, ...]

    def function(self, derived: Sequence[DerivedSize] = ()) -> Any:
        """Return the function for all sizes: its symbols are int64 variables of their names, which only it has, and
        `derived` stand in it as expressions of others.

        Raises:
            Declined: Something else than a constant of TensorIR depends on the sizes.
        """
        text = self.text
        if all(extent.is_static for extent in self.extents) and not any(self.ratios):
            return text.func
        nodes = list(map(_copied, text.nodes))
        writer, moved = _Writer(nodes, {size.symbol: size for size in derived}), dict[int, int]()
        for (place, key), number, extent in zip(text.readers, text.numbers, self.extents, strict=True):
            node = nodes[place]
            data: Any = node["data"]
            data[key] = writer.literal(_NUMBER, number)
            if not extent.is_static and node["type"] != _CONSTANT:
                raise Declined(f"a {node['type']} holds a number that depends on the open sizes: {extent}")
            if not extent.is_static:
                moved[place] = writer.expression(extent, data["ty"])
        counts = _counts(nodes)
        for place, value, ratio in zip(text.places, text.floats, self.ratios, strict=True):
            data = nodes[place]["data"]
            data["value"] = value
            if ratio is not None:
                moved[place] = writer.ratio(ratio, data["ty"], is_count=place in counts)
        for node in nodes if moved else ():
            data = node.get("data")
            for key, place in references(node):
                if place in moved:
                    data[key] = moved[place]
        return from_json_graph_str(json.dumps({"root_index": text.root, "nodes": nodes}))


def _copied(node: Node) -> Node:
    """Return `node` with data of its own, if it has any."""
    data: Any = node.get("data")
    if isinstance(data, dict):
        return {**node, "data": {**data}}
    return {**node, "data": [*data]} if isinstance(data, list) else node


def _counts(nodes: Sequence[Node]) -> set[int]:
    """Return the places of the floats by which blocks with the annotation `COUNTS` divide: by 1 none does."""
    found = set[int]()
    for node in nodes:
        if node["type"] == _BLOCK:
            notes = nodes[node["data"]["annotations"]]
            if any(nodes[place].get("data") == COUNTS for _, place in references(notes)):
                value = nodes[nodes[node["data"]["body"]]["data"]["value"]]
                if value["type"] == _DIVIDE:
                    found.add(value["data"]["b"])
    return found


@dataclass
class _Writer:
    """Adds expressions to the nodes of a function."""

    nodes: list[Node]
    derived: Mapping[str, DerivedSize]
    _variables: dict[str, int] = field(default_factory=dict, init=False)

    def expression(self, extent: Extent, kind: int) -> int:
        """Return the place of `extent` as an expression of the type at `kind`."""
        wide = self._add("ir.PrimType", span=0, dtype="int64")
        result = self._extent(extent, wide)
        narrow = self.nodes[kind]["data"]["dtype"] != "int64"
        return self._add("prim.Cast", span=0, ty=kind, value=result) if narrow else result

    def ratio(self, ratio: Ratio, kind: int, *, is_count: bool) -> int:
        """Return the place of a ratio as an expression of the floating type at `kind`: divided by 1 where that is by 0,
        as of one pixel between its corners nothing is read but the first. One that is a count is 1 at least."""
        (first, *factors), below = ratio
        wide = self._add("ir.PrimType", span=0, dtype="int64")
        above = self._extent(first, wide)
        for factor in factors:
            above = self._add("prim.Mul", span=0, ty=wide, a=above, b=self._extent(factor, wide))
        if is_count:
            above = self._positive(above, wide)
        result = self._add("prim.Cast", span=0, ty=kind, value=above)
        if below == Extent(1):
            return result
        divisor = self._add("prim.Cast", span=0, ty=kind, value=self._positive(self._extent(below, wide), wide))
        return self._add(_DIVIDE, span=0, ty=kind, a=result, b=divisor)

    def _positive(self, number: int, wide: int) -> int:
        """Return the place of what is at `number`, or 1 where that is less."""
        return self._add("prim.Max", span=0, ty=wide, a=number, b=self._constant(1, wide))

    def _extent(self, extent: Extent, wide: int) -> int:
        if extent.is_static:
            return self._constant(extent.constant, wide)
        result = self._variable(extent.symbols[0], wide)
        for symbol in extent.symbols[1:]:
            result = self._add("prim.Mul", span=0, ty=wide, a=result, b=self._variable(symbol, wide))
        if extent.coefficient != 1:
            result = self._add("prim.Mul", span=0, ty=wide, a=result, b=self._constant(extent.coefficient, wide))
        if extent.constant:
            result = self._add("prim.Add", span=0, ty=wide, a=result, b=self._constant(extent.constant, wide))
        return result

    def literal(self, kind: str, value: object) -> int:
        """Return the place of a new node that holds `value`."""
        self.nodes.append({"type": kind, "data": value})
        return len(self.nodes) - 1

    def _variable(self, name: str, kind: int) -> int:
        if name not in self._variables:
            size = self.derived.get(name)
            self._variables[name] = (
                self._add("ir.Var", span=0, ty=kind, name=self.literal("ffi.String", name))
                if size is None
                else self._derived(size, kind)
            )
        return self._variables[name]

    def _derived(self, size: DerivedSize, kind: int) -> int:
        result, *others = (self._extent(part, kind) for part in size.parts)
        for other in others:
            result = self._add("prim.Add", span=0, ty=kind, a=result, b=other)
        if size.divisor > 1:
            result = self._add("prim.FloorDiv", span=0, ty=kind, a=result, b=self._constant(size.divisor, kind))
        if size.most:
            result = self._add("prim.Min", span=0, ty=kind, a=result, b=self._constant(size.most, kind))
        return result

    def _constant(self, value: int, kind: int) -> int:
        return self._add(_CONSTANT, span=0, ty=kind, value=self.literal(_NUMBER, value))

    def _add(self, kind: str, **data: Any) -> int:
        return self.literal(kind, data)
