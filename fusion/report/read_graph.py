"""Reads the operators of an imported model and the calls of a compiled one from Relax."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import tvm
from tvm import relax

from backends.subgraphs import RUN_SUBGRAPH
from fusion.bindings import Bindings, call_arguments, call_name, callee, data_of
from fusion.frontends.imported import BranchCall, ImportedModel, names_called, read_branch_call
from fusion.model_graph import UNKNOWN, GraphCall, Read, SourceOperator
from fusion.shapes import dims_of, known_extents
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

    named: Named = field(default_factory=dict, init=False)
    _nodes: dict[relax.Var, tuple[int, ...]] = field(default_factory=dict, init=False)

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

    def outputs(self, bindings: Bindings) -> list[tuple[int, ...]]:
        """Return the nodes behind each field of what a function of these bindings returns."""
        return [self.behind(field) for field in bindings.results()]


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
    operators: list[SourceOperator] = field(default_factory=list, init=False)
    keys: list[tuple[str, str]] = field(default_factory=list, init=False)
    outputs: Outputs = field(default_factory=dict, init=False)
    _sources: _Sources = field(default_factory=_Sources, init=False)

    def run(self) -> OperatorReader:
        """Read everything; `keys` then has graph and variable of each operator."""
        assert self.imported.mod is not None
        main = self.imported.mod["main"]
        for param in main.params:
            self._sources.bind(MAIN, param, [self._add(MAIN, param, "input", ())])
        self._read(MAIN, main)
        return self

    def _read(self, graph: str, func: relax.Function) -> None:
        bindings = Bindings.of(func)
        for binding in bindings.all:
            self._sources.bind(graph, binding.var, self._nodes_of(graph, binding))
        self.outputs[graph] = self._sources.outputs(bindings)

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
        reads = self._sources.reads(value.args)
        return tuple(self._add(graph, binding.var, op, reads) for op in self._operators(value))

    def _operators(self, call: relax.Call) -> list[str]:
        """Return what a call of the model computes: of a subgraph of ONNX Runtime all nodes in it, each of which counts
        as one that reads and makes what the whole does."""
        name = operator_name(call)
        if name != RUN_SUBGRAPH:
            return [name]
        key = _key_of(call)
        nodes = [node.op for node in self.imported.fallbacks if node.subgraph == key]
        return nodes[: len(nodes) // self._graphs_with[key]]

    @cached_property
    def _graphs_with(self) -> Counter[str]:
        """How many graphs call a subgraph: that of two branches is one where it is equal, with the nodes of both."""
        modules = (self.imported.mod, *self.imported.branches.values())
        return Counter(name for mod in modules if mod is not None for name in names_called(mod))

    def _branch(self, name: str, call: BranchCall) -> tuple[int, ...]:
        main = self.imported.branches[name]["main"]
        for param, argument in zip(main.params, call.arguments, strict=True):
            self._sources.bind(name, param, self._sources.behind(argument))
        self._read(name, main)
        return self._sources.behind(main.body.body)

    def _add(self, graph: str, var: relax.Var, op: str, reads: tuple[Read, ...]) -> int:
        self.operators.append(
            SourceOperator(name=var.name, op=op, value=type_text(var.ty), reads=reads, calls=(), how=UNKNOWN)
        )
        self.keys.append((graph, var.name))
        return len(self.operators) - 1


@dataclass
class CallReader:
    """Reads the `main` of a compiled model, whose branches are inside.

    Attributes:
        branches: Names of the graphs inside each If.
    """

    branches: Branches
    calls: list[GraphCall] = field(default_factory=list, init=False)
    outputs: Outputs = field(default_factory=dict, init=False)
    _graphs: list[str] = field(default_factory=list, init=False)
    _sources: _Sources = field(default_factory=_Sources, init=False)
    _weights: set[relax.Var] = field(default_factory=set, init=False)

    @property
    def named(self) -> Named:
        """Calls by what they make."""
        return self._sources.named

    def places_in(self, graph: str) -> dict[str, list[int]]:
        """Return the positions of the calls in a graph by what they are of, in the order they run."""
        found: dict[str, list[int]] = {}
        for place, (of, call) in enumerate(zip(self._graphs, self.calls, strict=True)):
            if of == graph:
                found.setdefault(call.op, []).append(place)
        return found

    def run(self, main: relax.Function, n_inputs: int) -> CallReader:
        """Read everything; parameters after the first `n_inputs` are weights."""
        self._weights = set(main.params[n_inputs:])
        for param in main.params[:n_inputs]:
            self._sources.bind(MAIN, param, [self._add(MAIN, param, "input", "input", [])])
        self._read(MAIN, main.body)
        return self

    def _read(self, graph: str, body: relax.SeqExpr) -> None:
        bindings = Bindings.of(body)
        for binding in bindings.all:
            others = self._sources.behind(relax.Tuple(_read_and_updated(binding.value)[1]))
            self._sources.bind(graph, binding.var, self._nodes_of(graph, binding), others)
        self.outputs[graph] = self._sources.outputs(bindings)

    def _nodes_of(self, graph: str, binding: relax.Binding) -> tuple[int, ...]:
        value = binding.value
        if isinstance(value, relax.If):
            inside = self.branches.get((graph, binding.var.name), (f"{graph}?", f"{graph}?"))
            results: list[relax.Expr] = [value.cond]
            for name, branch in zip(inside, (value.true_branch, value.false_branch), strict=True):
                self._read(name, branch)
                results.append(branch.body)
            return (self._add(graph, binding.var, "if", "if", results),)
        if not isinstance(value, relax.Call):
            return self._sources.behind(value)
        name = call_name(value)
        if name in ("reshape", "memory.view", "memory.ensure_zero_offset"):
            return self._sources.behind(data_of(value))
        op, kind = operator_name(value), "kernel" if name in _KERNELS else "runtime"
        if op == RUN_SUBGRAPH:
            op, kind = _key_of(value), "fallback"
        return (self._add(graph, binding.var, op, kind, _read_and_updated(value)[0]),)

    def _add(self, graph: str, var: relax.Var, op: str, kind: str, args: list[relax.Expr]) -> int:
        read = {part for arg in args for part, _ in _parts(arg)}
        weights = sum(type_bytes(part.ty) for part in read if part in self._weights)
        self.calls.append(
            GraphCall(
                name=var.name,
                op=op,
                kind=kind,
                value=type_text(var.ty),
                reads=self._sources.reads(args),
                weights=weights,
                saved=0,
            )
        )
        self._graphs.append(graph)
        return len(self.calls) - 1


def operator_name(call: relax.Call) -> str:
    """Return what a call is of: an operator, a PrimFunc or a packed function."""
    name = call_name(call)
    if name in _KERNELS:
        return str(callee(call).name_hint)
    if name.startswith("call_") and isinstance(called := callee(call), relax.ExternFunc):
        return str(called.global_symbol)
    return name or str(getattr(call.op, "name_hint", "call"))


def _key_of(call: relax.Call) -> str:
    """Return the key of the subgraph that a call of `RUN_SUBGRAPH` runs."""
    _, key, *_ = call.args
    return str(key.value)


def _read_and_updated(call: relax.Expr) -> tuple[list[relax.Expr], list[relax.Expr]]:
    """Return what a call reads, and tensors that it writes to in part."""
    if call_name(call) != "call_tir_inplace":
        return list(call.args) if isinstance(call, relax.Call) else [], []
    updated = {int(place) for place in call.attrs.inplace_indices}
    arguments = list(enumerate(call_arguments(call)))
    return [value for at, value in arguments if at not in updated], [value for at, value in arguments if at in updated]


def type_text(kind: relax.Type) -> str:
    """Return dtype and shape as in "float32[1,3,224,224]"; "?" is what only the run knows."""
    if isinstance(kind, relax.TupleType):
        return f"({', '.join(type_text(item) for item in kind.fields)})"
    if not isinstance(kind, relax.TensorType):
        return type(kind).__name__
    dims = dims_of(kind.shape)
    return f"{kind.dtype}[{'...' if dims is None else ','.join('?' if dim is None else str(dim) for dim in dims)}]"


def type_bytes(kind: relax.Type) -> int:
    """Return the size of a value; 0 where only the run knows it."""
    if isinstance(kind, relax.TupleType):
        return sum(type_bytes(item) for item in kind.fields)
    extents = known_extents(kind.shape) if isinstance(kind, relax.TensorType) else None
    if extents is None or not fills_bytes(str(kind.dtype)):
        return 0
    return tensor_bytes(extents, str(kind.dtype))


def branch_names(graphs: Mapping[str, tvm.IRModule]) -> Branches:
    """Return which graphs are the branches of each If, before these are put into `main`."""
    found = {}
    for name, mod in graphs.items():
        for var, value in Bindings.of(mod["main"]).values.items():
            call = read_branch_call(value)
            if call is not None:
                found[name, var.name] = (call.then, call.otherwise)
    return found
