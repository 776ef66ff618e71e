"""The graph of `main`: a node for each binding, with its producers and consumers, and the partition into groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import tvm
from tvm import relax, tirx

from fusion.bindings import Bindings, callee, is_call_tir, variables
from partition.access import AccessSummary, MappingKind, read_access


@dataclass(eq=False)
class DataflowNode:
    """One binding of `main`.

    Attributes:
        index: Position in the order of execution.
        var, value: The binding.
        access: How its PrimFunc accesses its operands; `OPAQUE` if the value is no call of one.
        func: That PrimFunc; None if there is none.
        inputs: The nodes that it reads, in the order of its arguments, each once.
        operands: The same, each as often as it is an argument: twice for x x.
        consumers: The nodes that read it.
        escapes: Whether `main` returns it.
        cast: The type that a `MatchCast` gives the value; None for every other binding.
    """

    index: int
    var: relax.Var
    value: relax.Expr
    access: AccessSummary
    func: tirx.PrimFunc | None = None
    inputs: list[DataflowNode] = field(default_factory=list)
    operands: list[DataflowNode] = field(default_factory=list)
    consumers: list[DataflowNode] = field(default_factory=list)
    escapes: bool = False
    cast: relax.Type | None = None

    @property
    def name(self) -> str:
        return str(callee(self.value).name_hint) if is_call_tir(self.value) else ""


def anchors_of(group: Iterable[DataflowNode]) -> list[DataflowNode]:
    """Return the anchors of `group`, in its order."""
    return [member for member in group if member.access.kind is MappingKind.ANCHOR]


def read_graph(mod: tvm.IRModule) -> list[DataflowNode]:
    """Return the bindings of `main` as nodes in order of execution."""
    bindings = Bindings.of(mod["main"])
    accesses: dict[relax.GlobalVar, AccessSummary] = {}
    nodes: dict[relax.Var, DataflowNode] = {}
    for index, binding in enumerate(bindings.all):
        var, value = binding.var, binding.value
        func = mod[callee(value)] if is_call_tir(value) else None
        cast = binding.ty if isinstance(binding, relax.MatchCast) else None
        access = _access(value, func, accesses)
        nodes[var] = DataflowNode(index, var, value, access, func, escapes=var in bindings.returned, cast=cast)
    for node in nodes.values():
        node.operands.extend(nodes[var] for var in variables(node.value) if var in nodes)
        node.inputs.extend(dict.fromkeys(node.operands))
        node.consumers.extend(nodes[var] for var in dict.fromkeys(bindings.readers[node.var]))
    return list(nodes.values())


def _access(
    value: relax.Expr, func: tvm.ir.BaseFunc | None, known: dict[relax.GlobalVar, AccessSummary]
) -> AccessSummary:
    if not isinstance(func, tirx.PrimFunc) or not isinstance(value.ty, relax.TensorType) or len(value.args) != 2:
        return AccessSummary(MappingKind.OPAQUE)
    if callee(value) not in known:
        known[callee(value)] = read_access(func)
    return known[callee(value)]


class Groups:
    """A convex partition of the nodes: contracting every group to one node leaves an acyclic graph.

    A node that has not been merged is a group by itself.
    """

    def __init__(self, nodes: Sequence[DataflowNode]) -> None:
        self._members = {node: [node] for node in nodes}

    def of(self, node: DataflowNode) -> list[DataflowNode]:
        """Return the members of the group of `node`, in order of execution."""
        return self._members.setdefault(node, [node])

    def all(self) -> list[list[DataflowNode]]:
        """Return every group once, ordered by first member."""
        return list({id(members): members for members in self._members.values()}.values())

    @property
    def places(self) -> tuple[tuple[int, ...], ...]:
        """For every group the indices of its members."""
        return tuple(tuple(node.index for node in group) for group in self.all())

    def can_merge(self, *nodes: DataflowNode) -> bool:
        """Return whether merging the groups of `nodes` keeps the partition convex: whether no path leaves them and
        returns."""
        goals = {id(self.of(node)): self.of(node) for node in nodes}
        last = max(group[-1].index for group in goals.values())
        stack = [group for goal in goals.values() for node in goal for group in self._following(node)]
        stack = [group for group in stack if id(group) not in goals]
        seen = {id(group) for group in stack}
        while stack:
            for node in stack.pop():
                for group in self._following(node):
                    if id(group) in goals:
                        return False
                    if id(group) not in seen and group[0].index <= last:
                        seen.add(id(group))
                        stack.append(group)
        return True

    def merge(self, *nodes: DataflowNode) -> None:
        """Merge the groups of `nodes`, for which the caller has checked `can_merge`."""
        joined = sorted({member for node in nodes for member in self.of(node)}, key=lambda node: node.index)
        for node in joined:
            self._members[node] = joined

    def regroup(self, before: Sequence[list[DataflowNode]], after: Sequence[Sequence[DataflowNode]]) -> bool:
        """Replace the groups `before` by the groups `after`, which have the same members, if that keeps the partition
        convex.

        Returns:
            Whether the groups were replaced.
        """
        self._members.update((node, [node]) for group in before for node in group)
        for group in after:
            if not self.can_merge(*group):
                self._members.update((node, old) for old in before for node in old)
                return False
            self.merge(*group)
        return True

    def _following(self, node: DataflowNode) -> Iterator[list[DataflowNode]]:
        return (self.of(consumer) for consumer in node.consumers)
