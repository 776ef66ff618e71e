"""Reads the operators of an imported model and the calls of a compiled one from Relax."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import tvm
from tvm import relax

from backends.subgraphs import RUN_SUBGRAPH
from fusion.frontends.imported import BranchCall, ImportedModel, read_branch_call
from fusion.model_graph import UNKNOWN, Call, Operator, Read
from fusion.passes.rebuild import all_bindings, call_name
from fusion.tensors import fills_bytes, tensor_bytes

MAIN = ""
"""Name of the graph that is no branch."""

_KERNELS = ("call_tir", "call_tir_inplace")

Named = dict[tuple[str, str], tuple[int, ...]]
"""Positions of what makes a variable, by the names of its graph and of the variable."""
Outputs = dict[str, list[tuple[int, ...]]]
"""Positions of what makes each result, by the name of the graph."""
Branches = Mapping[tuple[str, str], tuple[str, str]]
"""Graphs of the two branches of an If, by the names of its graph and of its variable."""


@dataclass
class _Sources:
    """Which nodes are behind each variable."""

    named: Named = field(default_factory=dict)
    _nodes: dict[relax.Var, tuple[int, ...]] = field(default_factory=dict)

    def bind(self, graph: str, var: relax.Var, nodes: Iterable[int], others: Iterable[int] = ()) -> None:
        """Note that `nodes` make `var`, after `others` made parts of it; of a name that comes twice in a graph nothing
        is known."""
        made = tuple(dict.fromkeys(nodes))
        self._nodes[var] = tuple(dict.fromkeys((*others, *made)))
        key = (graph, var.name)
        self.named[key] = () if key in self.named else made

    def reads(self, exprs: Iterable[relax.Expr]) -> tuple[Read, ...]:
        """Return what the nodes behind `exprs` give, one entry for each node."""
        found: dict[int, int] = {}
        for expr in exprs:
            for part, var in _parts(expr):
                for node in self._nodes.get(var, ()):
                    found[node] = max(found.get(node, 0), type_bytes(part.ty))
        return tuple(Read(node, size) for node, size in found.items())

    def behind(self, expr: relax.Expr) -> tuple[int, ...]:
        """Return the nodes behind `expr`."""
        return tuple(read.source for read in self.reads([expr]))

    def outputs(self, result: relax.Expr, values: Mapping[relax.Var, relax.Expr]) -> list[tuple[int, ...]]:
        """Return the nodes behind each field of what a function returns."""
        while isinstance(result, relax.Var) and isinstance(values.get(result), relax.Var | relax.Tuple):
            result = values[result]
        return [self.behind(item) for item in (result.fields if isinstance(result, relax.Tuple) else [result])]


def _parts(expr: relax.Expr) -> Iterator[tuple[relax.Expr, relax.Var]]:
    """Yield the tensors in `expr`, each with the variable that holds it."""
    if isinstance(expr, relax.Tuple):
        for item in expr.fields:
            yield from _parts(item)
    elif isinstance(expr, relax.TupleGetItem):
        yield from ((expr, var) for _, var in _parts(expr.tuple_value))
    elif isinstance(expr, relax.Var):
        yield expr, expr


@dataclass
class OperatorReader:
    """Reads the modules of an imported model."""

    imported: ImportedModel
    operators: list[Operator] = field(default_factory=list)
    keys: list[tuple[str, str]] = field(default_factory=list)
    outputs: Outputs = field(default_factory=dict)
    _sources: _Sources = field(default_factory=_Sources)

    def run(self) -> OperatorReader:
        """Read everything; `keys` then has graph and variable of each operator."""
        assert self.imported.mod is not None
        main = self.imported.mod["main"]
        for param in main.params:
            self._sources.bind(MAIN, param, [self._add(MAIN, param, "input", ())])
        self._read(MAIN, main)
        return self

    def _read(self, graph: str, func: relax.Function) -> None:
        values = {}
        for binding in all_bindings(func):
            values[binding.var] = binding.value
            self._sources.bind(graph, binding.var, self._nodes_of(graph, binding))
        self.outputs[graph] = self._sources.outputs(func.body.body, values)

    def _nodes_of(self, graph: str, binding: relax.Binding) -> tuple[int, ...]:
        value = binding.value
        if not isinstance(value, relax.Call):
            return self._sources.behind(value)
        branch = read_branch_call(value)
        if branch is not None:
            results = [node for name in (branch.then, branch.otherwise) for node in self._branch(name, branch)]
            reads = self._sources.reads([branch.condition])
            both = (*reads, *(Read(node, type_bytes(binding.var.ty)) for node in results))
            return (self._add(graph, binding.var, "if", tuple(dict.fromkeys(both))),)
        return (self._add(graph, binding.var, operator_name(value), self._sources.reads(value.args)),)

    def _branch(self, name: str, call: BranchCall) -> tuple[int, ...]:
        main = self.imported.branches[name]["main"]
        for param, argument in zip(main.params, call.arguments, strict=True):
            self._sources.bind(name, param, self._sources.behind(argument))
        self._read(name, main)
        return self._sources.behind(main.body.body)

    def _add(self, graph: str, var: relax.Var, op: str, reads: tuple[Read, ...]) -> int:
        self.operators.append(Operator(var.name, op, type_text(var.ty), reads, (), UNKNOWN))
        self.keys.append((graph, var.name))
        return len(self.operators) - 1


@dataclass
class CallReader:
    """Reads the `main` of a compiled model, whose branches are inside.

    Attributes:
        branches: Names of the graphs inside each If.
    """

    branches: Branches
    calls: list[Call] = field(default_factory=list)
    outputs: Outputs = field(default_factory=dict)
    _sources: _Sources = field(default_factory=_Sources)
    _weights: set[relax.Var] = field(default_factory=set)

    @property
    def named(self) -> Named:
        """Calls by what they make."""
        return self._sources.named

    def run(self, main: relax.Function, n_inputs: int) -> CallReader:
        """Read everything; parameters after the first `n_inputs` are weights."""
        self._weights = set(main.params[n_inputs:])
        for param in main.params[:n_inputs]:
            self._sources.bind(MAIN, param, [self._add(param, "input", "input", [])])
        self._read(MAIN, main.body)
        return self

    def _read(self, graph: str, body: relax.SeqExpr) -> None:
        values = {}
        for block in body.blocks:
            for binding in block.bindings:
                values[binding.var] = binding.value
                others = self._sources.behind(relax.Tuple(_read_and_updated(binding.value)[1]))
                self._sources.bind(graph, binding.var, self._nodes_of(graph, binding), others)
        self.outputs[graph] = self._sources.outputs(body.body, values)

    def _nodes_of(self, graph: str, binding: relax.Binding) -> tuple[int, ...]:
        value = binding.value
        if isinstance(value, relax.If):
            inside = self.branches.get((graph, binding.var.name), (f"{graph}?", f"{graph}?"))
            results: list[relax.Expr] = [value.cond]
            for name, branch in zip(inside, (value.true_branch, value.false_branch), strict=True):
                self._read(name, branch)
                results.append(branch.body)
            return (self._add(binding.var, "if", "if", results),)
        if not isinstance(value, relax.Call):
            return self._sources.behind(value)
        name = call_name(value)
        if name in ("reshape", "memory.view", "memory.ensure_zero_offset"):
            return self._sources.behind(value.args[0])
        op = operator_name(value)
        kind = "kernel" if name in _KERNELS else "fallback" if op == RUN_SUBGRAPH else "runtime"
        return (self._add(binding.var, op, kind, _read_and_updated(value)[0]),)

    def _add(self, var: relax.Var, op: str, kind: str, args: list[relax.Expr]) -> int:
        read = {part for arg in args for part, _ in _parts(arg)}
        weights = sum(type_bytes(part.ty) for part in read if part in self._weights)
        self.calls.append(Call(var.name, op, kind, type_text(var.ty), self._sources.reads(args), weights, 0))
        return len(self.calls) - 1


def operator_name(call: relax.Call) -> str:
    """Return what a call is of: an operator, a PrimFunc or a packed function."""
    name = call_name(call)
    if name in _KERNELS:
        return str(call.args[0].name_hint)
    if name.startswith("call_") and isinstance(call.args[0], relax.ExternFunc):
        return str(call.args[0].global_symbol)
    return name or str(getattr(call.op, "name_hint", "call"))


def _read_and_updated(call: relax.Expr) -> tuple[list[relax.Expr], list[relax.Expr]]:
    """Return what a call reads, and tensors that it writes to in part."""
    if call_name(call) != "call_tir_inplace":
        return list(call.args) if isinstance(call, relax.Call) else [], []
    updated = {int(place) for place in call.attrs.inplace_indices}
    arguments = list(enumerate(call.args[1].fields))
    return [value for at, value in arguments if at not in updated], [value for at, value in arguments if at in updated]


def type_text(kind: relax.Type) -> str:
    """Return dtype and shape as in "float32[1,3,224,224]"; "?" is what only the run knows."""
    if isinstance(kind, relax.TupleType):
        return f"({', '.join(type_text(item) for item in kind.fields)})"
    if not isinstance(kind, relax.TensorType):
        return type(kind).__name__
    extents = _extents(kind)
    return f"{kind.dtype}[{'...' if extents is None else ','.join('?' if e < 0 else str(e) for e in extents)}]"


def type_bytes(kind: relax.Type) -> int:
    """Return the size of a value; 0 where only the run knows it."""
    if isinstance(kind, relax.TupleType):
        return sum(type_bytes(item) for item in kind.fields)
    extents = _extents(kind) if isinstance(kind, relax.TensorType) else None
    if extents is None or min(extents, default=0) < 0 or not fills_bytes(str(kind.dtype)):
        return 0
    return tensor_bytes(extents, str(kind.dtype))


def _extents(kind: relax.TensorType) -> tuple[int, ...] | None:
    """Return the shape, -1 for what is unknown; None where not even the rank is known."""
    if not isinstance(kind.shape, relax.ShapeExpr):
        return None
    return tuple(int(extent) if isinstance(extent, tvm.tirx.IntImm) else -1 for extent in kind.shape.values)


def branch_names(graphs: Mapping[str, tvm.IRModule]) -> Branches:
    """Return which graphs are the branches of each If, before these are put into `main`."""
    found = {}
    for name, mod in graphs.items():
        for binding in all_bindings(mod["main"]):
            call = read_branch_call(binding.value)
            if call is not None:
                found[name, binding.var.name] = (call.then, call.otherwise)
    return found
