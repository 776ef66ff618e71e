"""Writes groups back as Relax functions, and returns the PrimFuncs that they become."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import tvm
from tvm import relax, tirx

from fusion.bindings import call_arguments, callee, is_call_tir
from partition.access import MappingKind
from partition.dataflow import DataflowNode, Groups
from partition.formed import Formed, saved_bytes
from partition.substitution import substitute


def emit_groups(
    mod: tvm.IRModule, groups: Groups, nodes: Sequence[DataflowNode]
) -> tuple[tvm.IRModule, tuple[Formed, ...]]:
    """Rewrite `main` so that each group of several calls becomes a call of a private function, which `FuseTIR` fuses.

    Returns:
        The module, and a record of each group.
    """
    main = mod["main"]
    emitter = _Emitter(relax.BlockBuilder(mod))
    with emitter.builder.function("main_grouped", list(main.params)):
        with emitter.builder.dataflow():
            formed = [each for group in _in_order(groups, nodes) for each in emitter.emit(group)]
            returned = substitute(main.body.body, emitter.env)
            result = emitter.builder.emit_output(returned)
        emitter.builder.emit_func_output(result)
    made = emitter.builder.finalize()
    grouped = made["main_grouped"].with_attrs({**dict(main.attrs or {}), "global_symbol": "main"})
    del made["main_grouped"]
    made["main"] = grouped
    if isinstance(returned, relax.Var):  # later passes remove such an alias
        formed = [replace(each, variable=result.name) if each.variable == returned.name else each for each in formed]
    return made, tuple(formed)


@dataclass
class _Emitter:
    """Emits the new `main`, group by group.

    Attributes:
        builder: The builder of the new module.
        env: For each variable of the old `main` that has been computed, the variable that holds it in the new one.
    """

    builder: relax.BlockBuilder
    env: dict[relax.Var, relax.Expr] = field(default_factory=dict)

    def emit(self, group: list[DataflowNode]) -> Iterator[Formed]:
        """Emit the call of one group, and the views of its result; yield a record of each."""
        kernel, views = split_views(group)
        if len(kernel) == 1 or not is_call_tir(kernel[0].value):
            yield from (self._emit_alone(node) for node in kernel)
        else:
            yield self._emit_function(kernel)
        yield from (self._emit_alone(node) for node in views)

    def _emit_alone(self, node: DataflowNode) -> Formed:
        self.env[node.var] = made = _bind(self.builder, node, self.env)
        return Formed(made.name, (node.var.name,), (node.index,), 0)

    def _emit_function(self, kernel: list[DataflowNode]) -> Formed:
        outputs = outputs_of(kernel)
        arguments = list(dict.fromkeys(_outer_arguments(kernel)))
        symbol = self.builder.add_func(_group_function(kernel, outputs, arguments), _group_name(kernel))
        call = relax.Call(symbol, [substitute(argument, self.env) for argument in arguments])
        called = self.builder.emit(call, kernel[-1].var.name)
        for index, node in enumerate(outputs):
            item = called if len(outputs) == 1 else self.builder.emit(relax.TupleGetItem(called, index))
            self.env[node.var] = item
        members, places = tuple(node.var.name for node in kernel), tuple(node.index for node in kernel)
        return Formed(called.name, members, places, saved_bytes(kernel, outputs))


def fused_primfunc(kernel: Sequence[DataflowNode]) -> tirx.PrimFunc:
    """Return the PrimFunc into which `FuseTIR` fuses a group, whose members are in the order of execution."""
    arguments = list(dict.fromkeys(_outer_arguments(kernel)))
    function = _group_function(kernel, outputs_of(kernel), arguments)
    builder = relax.BlockBuilder(tvm.IRModule({callee(node.value): node.func for node in kernel}))
    inputs = [relax.Var(f"x{index}", argument.ty) for index, argument in enumerate(arguments)]
    with builder.function("main", inputs):
        with builder.dataflow():
            result = builder.emit_output(relax.Call(builder.add_func(function, "group"), inputs))
        builder.emit_func_output(result)
    fused = relax.transform.FuseTIR()(builder.get())
    (func,) = (func for symbol, func in fused.functions.items() if symbol.name_hint == "group")
    return func


def outputs_of(kernel: Sequence[DataflowNode]) -> list[DataflowNode]:
    """Return the nodes of `kernel` whose results are read outside of it, or returned."""
    inside = set(kernel)
    return [node for node in kernel if node.escapes or any(c not in inside for c in node.consumers)]


def _group_name(kernel: list[DataflowNode]) -> str:
    """Return a name of the operators inside; a private function named exactly `fused` would abort FuseTIR
    (tvm#20194)."""
    return "_".join(["group", *dict.fromkeys(node.name for node in kernel)])[:80]


def _outer_arguments(kernel: Sequence[DataflowNode]) -> Iterator[relax.Expr]:
    made = {node.var for node in kernel}
    for node in kernel:
        yield from (arg for arg in call_arguments(node.value) if arg not in made)


def _group_function(
    kernel: Sequence[DataflowNode], outputs: Sequence[DataflowNode], arguments: Sequence[relax.Expr]
) -> relax.Function:
    params = [relax.Var(f"p{index}", argument.ty) for index, argument in enumerate(arguments)]
    local: dict[relax.Expr, relax.Expr] = dict(zip(arguments, params, strict=True))
    builder = relax.BlockBuilder()
    with builder.function("group", params, attrs={"Primitive": True}, private=True):
        with builder.dataflow():
            for node in kernel:
                passed = relax.Tuple([local.get(arg, arg) for arg in call_arguments(node.value)])
                call = relax.Call(node.value.op, [callee(node.value), passed], node.value.attrs, node.value.ty_args)
                local[node.var] = builder.emit(call, node.var.name)
            made = [local[node.var] for node in outputs]
            result = builder.emit_output(made[0] if len(made) == 1 else relax.Tuple(made))
        builder.emit_func_output(result)
    return next(func for func in builder.get().functions.values() if isinstance(func, relax.Function))


def split_views(group: list[DataflowNode]) -> tuple[list[DataflowNode], list[DataflowNode]]:
    """Split off trailing reshapes. Outside of a kernel they are views of its result and cost nothing, except those that
    `main` returns, which would be copies."""
    kernel = list(group)
    views: list[DataflowNode] = []
    while len(kernel) > 1 and _is_view(kernel[-1]):
        views.insert(0, kernel.pop())
    return kernel, views


def _is_view(node: DataflowNode) -> bool:
    return node.access.kind is MappingKind.REORDER and not node.access.moves and not node.escapes


def _in_order(groups: Groups, nodes: Sequence[DataflowNode]) -> Iterator[list[DataflowNode]]:
    """Yield the groups in topological order."""
    done: set[int] = set()
    for node in nodes:
        yield from _with_inputs(groups, groups.of(node), done)


def _with_inputs(groups: Groups, group: list[DataflowNode], done: set[int]) -> Iterator[list[DataflowNode]]:
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


def _bind(builder: relax.BlockBuilder, node: DataflowNode, env: dict[relax.Var, relax.Expr]) -> relax.Var:
    value = substitute(node.value, env)
    return builder.emit(value, node.var.name) if node.cast is None else builder.match_cast(value, node.cast)
