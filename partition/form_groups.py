"""Puts neighbours that may share a kernel into one private function each, which `FuseTIR` merges into one PrimFunc."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import tvm
from tvm import relax, tirx

from partition.access import Kind
from partition.chains import Judge, no_template, read_chain
from partition.dataflow import Groups, Node, call_arguments, is_call_tir, read_graph
from partition.formed import Formed, saved_bytes
from partition.rules import decline
from partition.substitution import substitute
from partition.windows import read_window


@dataclass(frozen=True)
class Kept:
    """An edge that stayed a memory access, and why.

    Attributes:
        producer, consumer: Names of the functions that the two call.
        source, target: Names of the variables that their results are bound to.
    """

    producer: str
    consumer: str
    reason: str
    source: str
    target: str


Edge = tuple[Node, Node, str]
"""Producer, consumer, and why they stay apart."""


@dataclass(frozen=True)
class FormGroups:
    """`y = call_tir(conv, x, w); z = call_tir(relu, y)`  ->  `z = group0(x, w)` with both calls in the private
    `group0`.

    Nodes are visited in order of execution; each joins the groups of its producers where a rule allows it and the
    graph of groups stays acyclic. `kept` collects the edges that were not fused, `formed` the groups.

    Attributes:
        judge: Which chains of two products become one kernel; none unless given.
    """

    judge: Judge = no_template
    kept: list[Kept] = field(default_factory=list)
    formed: list[Formed] = field(default_factory=list)
    name: str = "form_groups"

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        nodes = read_graph(mod)
        groups = Groups(nodes)
        declined = [edge for node in nodes for edge in self._join(node, groups)]
        declined += _through_tuples(nodes)
        self.kept.extend(
            Kept(producer.name, node.name, reason, producer.var.name, node.var.name)
            for producer, node, reason in declined
            if groups.of(producer) is not groups.of(node)
        )
        return _Emitter(mod, groups, self.formed).run(nodes)

    def _join(self, node: Node, groups: Groups) -> list[Edge]:
        """Put `node` into a group; returns the edges that stay as they are, and why."""
        if not is_call_tir(node.value):
            return []
        if node.access.kind is Kind.OPAQUE:
            return [(source, node, decline([source], node)) for source in node.inputs if is_call_tir(source.value)]
        chain = read_chain(groups, node, self.judge, _merged) or read_window(groups, node, self.judge, _merged)
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


def _through_tuples(nodes: list[Node]) -> Iterator[Edge]:
    """Yield the edges from kernels with several results, which are read as parts of a tuple."""
    for node in nodes:
        for part in node.inputs if is_call_tir(node.value) else ():
            makers = part.inputs if isinstance(part.value, relax.TupleGetItem) else []
            yield from ((m, node, f"{m.name} has several results") for m in makers if is_call_tir(m.value))


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
    formed: list[Formed]

    def run(self, nodes: list[Node]) -> tvm.IRModule:
        main = self.mod["main"]
        builder = relax.BlockBuilder(self.mod)
        env: dict[relax.Var, relax.Expr] = {}
        with builder.function("main_grouped", list(main.params)):
            with builder.dataflow():
                for group in _in_order(self.groups, nodes):
                    self._emit(builder, group, env)
                returned = substitute(main.body.body, env)
                result = builder.emit_output(returned)
            builder.emit_func_output(result)
        if isinstance(returned, relax.Var):
            self._rename(returned.name, result.name)
        mod = builder.finalize()
        grouped = mod["main_grouped"].with_attrs({**dict(main.attrs or {}), "global_symbol": "main"})
        del mod["main_grouped"]
        mod["main"] = grouped
        return mod

    def _rename(self, name: str, output: str) -> None:
        """Note that the call bound to `name` will be bound to `output`: later passes remove such an alias."""
        for index, formed in enumerate(self.formed):
            if formed.variable == name:
                self.formed[index] = replace(formed, variable=output)

    def _emit(self, builder: relax.BlockBuilder, group: list[Node], env: dict[relax.Var, relax.Expr]) -> None:
        kernel, views = _split_views(group)
        if len(kernel) == 1 or not is_call_tir(kernel[0].value):
            for node in kernel:
                self._emit_alone(builder, node, env)
        else:
            self._emit_function(builder, kernel, env)
        for node in views:
            self._emit_alone(builder, node, env)

    def _emit_alone(self, builder: relax.BlockBuilder, node: Node, env: dict[relax.Var, relax.Expr]) -> None:
        env[node.var] = made = _bind(builder, node, env)
        self.formed.append(Formed(made.name, (node.var.name,), 0))

    def _emit_function(self, builder: relax.BlockBuilder, kernel: list[Node], env: dict[relax.Var, relax.Expr]) -> None:
        outputs = _outputs(kernel)
        arguments = list(dict.fromkeys(_outer_arguments(kernel)))
        function = _group_function(kernel, outputs, arguments)
        symbol = builder.add_func(function, _group_name(kernel))
        called = builder.emit(relax.Call(symbol, [substitute(arg, env) for arg in arguments]), kernel[-1].var.name)
        self.formed.append(Formed(called.name, tuple(node.var.name for node in kernel), saved_bytes(kernel, outputs)))
        for index, node in enumerate(outputs):
            env[node.var] = called if len(outputs) == 1 else builder.emit(relax.TupleGetItem(called, index))


def _merged(nodes: Sequence[Node]) -> tirx.PrimFunc:
    """Return the PrimFunc that `FuseTIR` makes of a group of `nodes`."""
    kernel = sorted(nodes, key=lambda node: node.index)
    arguments = list(dict.fromkeys(_outer_arguments(kernel)))
    function = _group_function(kernel, _outputs(kernel), arguments)
    builder = relax.BlockBuilder(tvm.IRModule({node.value.args[0]: node.func for node in kernel}))
    inputs = [relax.Var(f"x{index}", argument.ty) for index, argument in enumerate(arguments)]
    with builder.function("main", inputs):
        with builder.dataflow():
            result = builder.emit_output(relax.Call(builder.add_func(function, "group"), inputs))
        builder.emit_func_output(result)
    fused = relax.transform.FuseTIR()(builder.get())
    (func,) = (func for symbol, func in fused.functions.items() if symbol.name_hint == "group")
    return func


def _outputs(kernel: Sequence[Node]) -> list[Node]:
    """Return the nodes that something outside of `kernel` reads."""
    inside = set(kernel)
    return [node for node in kernel if node.escapes or any(c not in inside for c in node.consumers)]


def _group_name(kernel: list[Node]) -> str:
    """Return a name of the operators inside; a private function named exactly `fused` would abort FuseTIR
    (tvm#20194)."""
    return "_".join(["group", *dict.fromkeys(node.name for node in kernel)])[:80]


def _outer_arguments(kernel: Sequence[Node]) -> Iterator[relax.Expr]:
    made = {node.var for node in kernel}
    for node in kernel:
        yield from (arg for arg in call_arguments(node.value) if arg not in made)


def _group_function(
    kernel: Sequence[Node], outputs: Sequence[Node], arguments: Sequence[relax.Expr]
) -> relax.Function:
    params = [relax.Var(f"p{index}", argument.ty) for index, argument in enumerate(arguments)]
    local: dict[relax.Expr, relax.Expr] = dict(zip(arguments, params, strict=True))
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
