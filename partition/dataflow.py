"""A dataflow view of `main`: nodes, their operands and consumers, and which groups they belong to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import tvm
from tvm import relax, tirx

from partition.access import Access, Kind, read_access


@dataclass(eq=False)
class Node:
    """One binding of `main`.

    Attributes:
        index: Place in the order of execution.
        var, value: The binding.
        access: What its PrimFunc does; `OPAQUE` where it calls none.
        func: That PrimFunc; None where it calls none.
        inputs: Nodes it reads, in order, without repeats.
        consumers: Nodes that read it.
        escapes: Whether the function returns it.
        cast: Type that a `MatchCast` gives the value; None for every other binding.
    """

    index: int
    var: relax.Var
    value: relax.Expr
    access: Access
    func: tirx.PrimFunc | None = None
    inputs: list[Node] = field(default_factory=list)
    consumers: list[Node] = field(default_factory=list)
    escapes: bool = False
    cast: relax.Type | None = None

    @property
    def name(self) -> str:
        return str(self.value.args[0].name_hint) if is_call_tir(self.value) else ""


def is_call_tir(value: relax.Expr) -> bool:
    """Return whether `value` is `R.call_tir` of a PrimFunc of the module."""
    return isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op) and value.op.name == "relax.call_tir"


def call_arguments(value: relax.Call) -> list[relax.Expr]:
    """Return the tensors that a `call_tir` reads."""
    given = value.args[1]
    return list(given.fields) if isinstance(given, relax.Tuple) else [given]


def anchors_of(group: Iterable[Node]) -> list[Node]:
    """Return the complex operators of `group`, in order."""
    return [member for member in group if member.access.kind is Kind.ANCHOR]


def read_graph(mod: tvm.IRModule) -> list[Node]:
    """Return the bindings of `main` as nodes in order of execution."""
    main = mod["main"]
    accesses: dict[relax.GlobalVar, Access] = {}
    nodes: dict[relax.Var, Node] = {}
    for block in main.body.blocks:
        for binding in block.bindings:
            func = mod[binding.value.args[0]] if is_call_tir(binding.value) else None
            node = Node(len(nodes), binding.var, binding.value, _access(mod, binding.value, accesses), func)
            node.cast = binding.ty if isinstance(binding, relax.MatchCast) else None
            for var in dict.fromkeys(variables(binding.value)):
                if var in nodes:
                    node.inputs.append(nodes[var])
                    nodes[var].consumers.append(node)
            nodes[binding.var] = node
    for var in variables(main.body.body):
        if var in nodes:
            nodes[var].escapes = True
    return list(nodes.values())


def _access(mod: tvm.IRModule, value: relax.Expr, known: dict[relax.GlobalVar, Access]) -> Access:
    if not is_call_tir(value) or not isinstance(value.ty, relax.TensorType) or len(value.args) != 2:
        return Access(Kind.OPAQUE)
    symbol = value.args[0]
    if symbol not in known:
        func = mod[symbol]
        known[symbol] = read_access(func) if isinstance(func, tirx.PrimFunc) else Access(Kind.OPAQUE)
    return known[symbol]


def variables(expr: relax.Expr) -> Iterator[relax.Var]:
    """Yield the variables that `expr` reads, once for each place."""
    if isinstance(expr, relax.Var) and not isinstance(expr, relax.GlobalVar):
        yield expr
    elif isinstance(expr, relax.Tuple):
        for item in expr.fields:
            yield from variables(item)
    elif isinstance(expr, relax.TupleGetItem):
        yield from variables(expr.tuple_value)
    elif isinstance(expr, relax.Call):
        for arg in expr.args:
            yield from variables(arg)


class Groups:
    """A partition of the nodes that stays acyclic: contracting every group leaves a graph without cycles.

    Nodes that it has not seen are groups of one.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._members = {node: [node] for node in nodes}

    def of(self, node: Node) -> list[Node]:
        """Return the members of the group of `node`, in order of execution."""
        return self._members.setdefault(node, [node])

    def all(self) -> list[list[Node]]:
        """Return every group once, ordered by first member."""
        return list({id(members): members for members in self._members.values()}.values())

    def can_merge(self, *nodes: Node) -> bool:
        """Return whether no path leads from the groups of `nodes` through another one back into them."""
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

    def merge(self, *nodes: Node) -> None:
        """Make one group of those of `nodes`; the caller has asked `can_merge`."""
        joined = sorted({member for node in nodes for member in self.of(node)}, key=lambda node: node.index)
        for node in joined:
            self._members[node] = joined

    def regroup(self, before: Sequence[list[Node]], after: Sequence[Sequence[Node]]) -> bool:
        """Put the members of the groups `before` into the groups `after`, unless that leaves a cycle.

        Returns:
            Whether they are in `after`.
        """
        self._members.update((node, [node]) for group in before for node in group)
        for group in after:
            if not self.can_merge(*group):
                self._members.update((node, old) for old in before for node in old)
                return False
            self.merge(*group)
        return True

    def _following(self, node: Node) -> Iterator[list[Node]]:
        return (self.of(consumer) for consumer in node.consumers)
