"""Puts neighbours that may share a kernel into one private function each, which `FuseTIR` merges into one PrimFunc."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import tvm
from tvm import relax

from partition.access import Kind
from partition.chains import Judge, no_template, read_chain
from partition.dataflow import Groups, Node, call_arguments, is_call_tir, read_graph
from partition.rules import decline
from partition.substitution import substitute


@dataclass(frozen=True)
class Kept:
    """An edge that stayed a memory access, and why."""

    producer: str
    consumer: str
    reason: str


Edge = tuple[Node, Node, str]
"""Producer, consumer, and why they stay apart."""


@dataclass(frozen=True)
class FormGroups:
    """`y = call_tir(conv, x, w); z = call_tir(relu, y)`  ->  `z = group0(x, w)` with both calls in the private
    `group0`.

    Nodes are visited in order of execution; each joins the groups of its producers where a rule allows it and the
    graph of groups stays acyclic. `kept` collects the edges that were not fused.

    Attributes:
        judge: Which chains of two products become one kernel; none unless given.
    """

    judge: Judge = no_template
    kept: list[Kept] = field(default_factory=list)
    name: str = "form_groups"

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        nodes = read_graph(mod)
        groups = Groups(nodes)
        declined = [edge for node in nodes for edge in self._join(node, groups)]
        self.kept.extend(
            Kept(producer.name, node.name, reason)
            for producer, node, reason in declined
            if groups.of(producer) is not groups.of(node)
        )
        return _Emitter(mod, groups).run(nodes)

    def _join(self, node: Node, groups: Groups) -> list[Edge]:
        """Put `node` into a group; returns the edges that stay as they are, and why."""
        if not is_call_tir(node.value) or node.access.kind is Kind.OPAQUE:
            return []
        chain = read_chain(groups, node, self.judge)
        if chain is not None and chain.first is not None:
            groups.merge(chain.first, chain.rows, node)
        declined = []
        for producer in sorted(node.inputs, key=lambda n: (n.access.elements, n.index), reverse=True):
            if groups.of(producer) is groups.of(node) or not is_call_tir(producer.value):
                continue
            if chain is not None and producer is chain.rows:
                reason = chain.reason
            else:
                reason = _decline_merge(groups, producer, node)
            if reason:
                declined.append((producer, node, reason))
            else:
                groups.merge(producer, node)
        return declined


def _decline_merge(groups: Groups, producer: Node, node: Node) -> str:
    """Return why the groups of `producer` and `node` stay apart; "" where they may be joined."""
    mine, theirs = groups.of(node), groups.of(producer)
    if len(mine) > 1 and any(member.access.kind is Kind.ANCHOR for member in (*mine, *theirs)):
        return "the consumer is already part of another kernel"
    used_elsewhere = producer.escapes or any(consumer not in (*mine, *theirs) for consumer in producer.consumers)
    if used_elsewhere and producer.access.kind in (Kind.REORDER, Kind.GATHER):
        return "the producer has other consumers"
    for member in mine:
        reason = decline(theirs, member)
        if reason:
            return reason
    return "" if groups.can_merge(producer, node) else "a path between them leaves the kernel"


@dataclass
class _Emitter:
    """Writes the groups back as a module."""

    mod: tvm.IRModule
    groups: Groups

    def run(self, nodes: list[Node]) -> tvm.IRModule:
        main = self.mod["main"]
        builder = relax.BlockBuilder(self.mod)
        env: dict[relax.Var, relax.Expr] = {}
        with builder.function("main_grouped", list(main.params)):
            with builder.dataflow():
                for group in _in_order(self.groups, nodes):
                    self._emit(builder, group, env)
                result = builder.emit_output(substitute(main.body.body, env))
            builder.emit_func_output(result)
        mod = builder.finalize()
        grouped = mod["main_grouped"].with_attrs({**dict(main.attrs or {}), "global_symbol": "main"})
        del mod["main_grouped"]
        mod["main"] = grouped
        return mod

    def _emit(self, builder: relax.BlockBuilder, group: list[Node], env: dict[relax.Var, relax.Expr]) -> None:
        kernel, views = _split_views(group)
        if len(kernel) == 1 or not is_call_tir(kernel[0].value):
            for node in kernel:
                env[node.var] = _bind(builder, node, env)
        else:
            self._emit_function(builder, kernel, env)
        for node in views:
            env[node.var] = _bind(builder, node, env)

    def _emit_function(self, builder: relax.BlockBuilder, kernel: list[Node], env: dict[relax.Var, relax.Expr]) -> None:
        inside = set(kernel)
        outputs = [node for node in kernel if node.escapes or any(c not in inside for c in node.consumers)]
        arguments = list(dict.fromkeys(_outer_arguments(kernel)))
        params = [relax.Var(f"p{index}", arg.ty) for index, arg in enumerate(arguments)]
        local: dict[relax.Expr, relax.Expr] = dict(zip(arguments, params, strict=True))
        function = _group_function(kernel, outputs, params, local)
        symbol = builder.add_func(function, _group_name(kernel))
        called = builder.emit(relax.Call(symbol, [substitute(arg, env) for arg in arguments]), kernel[-1].var.name)
        for index, node in enumerate(outputs):
            env[node.var] = called if len(outputs) == 1 else builder.emit(relax.TupleGetItem(called, index))


def _group_name(kernel: list[Node]) -> str:
    """Return a name of the operators inside; a private function named exactly `fused` would abort FuseTIR
    (tvm#20194)."""
    return "_".join(["group", *dict.fromkeys(node.name for node in kernel)])[:80]


def _outer_arguments(kernel: list[Node]) -> Iterator[relax.Expr]:
    made = {node.var for node in kernel}
    for node in kernel:
        yield from (arg for arg in call_arguments(node.value) if arg not in made)


def _group_function(
    kernel: list[Node], outputs: list[Node], params: list[relax.Var], local: dict[relax.Expr, relax.Expr]
) -> relax.Function:
    builder = relax.BlockBuilder()
    with builder.function("group", params, attrs={"Primitive": True}, private=True):
        with builder.dataflow():
            for node in kernel:
                arguments = relax.Tuple([local.get(arg, arg) for arg in call_arguments(node.value)])
                call = relax.Call(node.value.op, [node.value.args[0], arguments], node.value.attrs, node.value.ty_args)
                local[node.var] = builder.emit(call, node.var.name)
            made = [local[node.var] for node in outputs]
            result = builder.emit_output(made[0] if len(made) == 1 else relax.Tuple(made))
        builder.emit_func_output(result)
    return next(func for func in builder.get().functions.values() if isinstance(func, relax.Function))


def _split_views(group: list[Node]) -> tuple[list[Node], list[Node]]:
    """Split off trailing reshapes: outside a kernel they are views of its result and cost nothing, but for those that
    the function returns, which would be copies."""
    kernel = list(group)
    views: list[Node] = []
    while len(kernel) > 1 and _is_view(kernel[-1]):
        views.insert(0, kernel.pop())
    return kernel, views


def _is_view(node: Node) -> bool:
    return node.access.kind is Kind.REORDER and not node.access.moves and not node.escapes


def _in_order(groups: Groups, nodes: list[Node]) -> Iterator[list[Node]]:
    """Yield the groups so that each comes after all that it reads."""
    done: set[int] = set()
    for node in nodes:
        yield from _with_inputs(groups, groups.of(node), done)


def _with_inputs(groups: Groups, group: list[Node], done: set[int]) -> Iterator[list[Node]]:
    stack = [(group, iter([source for node in group for source in node.inputs]))]
    if id(group) in done:
        return
    done.add(id(group))
    while stack:
        current, sources = stack[-1]
        following = next((groups.of(s) for s in sources if id(groups.of(s)) not in done), None)
        if following is None:
            stack.pop()
            yield current
            continue
        done.add(id(following))
        stack.append((following, iter([source for node in following for source in node.inputs])))


def _bind(builder: relax.BlockBuilder, node: Node, env: dict[relax.Var, relax.Expr]) -> relax.Var:
    value = substitute(node.value, env)
    return builder.emit(value, node.var.name) if node.cast is None else builder.match_cast(value, node.cast)
