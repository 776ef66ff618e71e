"""Writes the parts of concatenations where they belong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import tvm
from tvm import relax, tirx
from tvm.ir import GlobalVar

from backends.memory_costs import MemoryCosts
from fusion.passes.concats.plan import Decline, Place, Plan, Planner
from fusion.passes.concats.read import Graph, Result
from fusion.passes.rebuild import call_name, rebuild_main
from partition.dataflow import call_arguments
from partition.form_groups import FormGroups, Kept
from partition.slices import copy_function, hide_outputs, read_slice, with_parameters, write_slice


@dataclass(frozen=True)
class PlaceConcats:
    """`a = call_tir(f, x); b = call_tir(g, y); c = call_tir(concat, (a, b))`  ->
    `ca = call_tir(f', x); c = call_tir_inplace(g', (y, ca))`, where f' and g' write slices of the joined tensor.

    What else reads `a` takes it from the joined tensor where it can; otherwise f' writes it twice. Parts that no kernel
    can place are copied, one by one, unless that costs as much as the concatenation did.

    Attributes:
        decline: Says why no template takes a kernel.
        costs: Of the machine.
        groups: The pass that made the kernels; what it tells of them is brought up to date.
        joined: Takes the variables of the calls that write each concatenation that has no kernel any more.
    """

    decline: Decline
    costs: MemoryCosts
    groups: FormGroups
    joined: dict[str, tuple[str, ...]] = field(default_factory=dict)
    name: str = "place_concats"

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        graph = Graph.read(mod)
        if not graph.operands:
            return mod
        plan = Planner(graph, self.decline, self.costs).run()
        emitter = _Emitter(graph, plan)
        result = emitter.run() if plan.joined else mod
        self._tell(graph, plan, emitter)
        return result

    def _tell(self, graph: Graph, plan: Plan, emitter: _Emitter) -> None:
        """Note which calls took the place of others, and which edges are no memory accesses any more."""
        self.joined.update({var.name: tuple(dict.fromkeys(names)) for var, names in emitter.writers.items()})
        self.groups.kept[:] = [edge for kept in self.groups.kept for edge in self._still_kept(graph, plan, kept)]
        calls = {var.name: var for var in graph.values}
        for index, formed in enumerate(self.groups.formed):
            var = calls.get(formed.variable)
            if var in emitter.renamed:
                saved = formed.saved + plan.saved.get(var, 0)
                self.groups.formed[index] = replace(formed, variable=emitter.renamed[var], saved=saved)

    def _still_kept(self, graph: Graph, plan: Plan, kept: Kept) -> list[Kept]:
        concat = next((var for var in graph.operands if var.name == kept.target), None)
        if concat is None:
            return [kept]
        makers = {name: formed.variable for formed in self.groups.formed for name in formed.members}
        maker = makers.get(kept.source, kept.source)
        for operand in graph.operands[concat]:
            result = graph.part(operand).result
            if maker in (getattr(operand, "name", ""), result.call.name if result is not None else ""):
                reason = plan.reasons.get((concat, operand), "")
                return [replace(kept, reason=reason)] if reason else []
        return [kept]


@dataclass(frozen=True)
class _Kernel:
    """A call to be made.

    Attributes:
        symbol: Its PrimFunc, which takes inputs, joined tensors that others wrote to before, and results.
        reads: For each input the joined tensor that it is read from; None where it is an argument as before.
        updated: The joined tensors that others wrote to before.
        own: The results that have memory of their own.
        begun: The joined tensors that this call is the first to write to.
        types: Of `own`, `begun` and `updated`.
    """

    symbol: GlobalVar
    reads: tuple[relax.Var | None, ...]
    updated: tuple[relax.Var, ...]
    own: tuple[Result, ...]
    begun: tuple[relax.Var, ...]
    types: tuple[relax.TensorType, ...]


@dataclass
class _Emitter:
    """Writes the module anew.

    Attributes:
        writers: Names of the variables of the calls that write each concatenation.
        renamed: New names of variables of calls.
    """

    graph: Graph
    plan: Plan
    writers: dict[relax.Var, list[str]] = field(default_factory=dict)
    renamed: dict[relax.Var, str] = field(default_factory=dict)
    _kernels: dict[relax.Var, _Kernel] = field(default_factory=dict)
    _copies: dict[relax.Var, list[_Kernel]] = field(default_factory=dict)
    _begun: set[relax.Var] = field(default_factory=set)
    _current: dict[relax.Var, relax.Var] = field(default_factory=dict)
    _own: dict[Result, relax.Expr] = field(default_factory=dict)
    _concats: dict[relax.Var, relax.Expr] = field(default_factory=dict)
    _dead: set[relax.Var] = field(default_factory=set)

    def run(self) -> tvm.IRModule:
        """Return the module."""
        functions = relax.BlockBuilder(self.graph.mod)
        for var in self.graph.values:
            if var in self.plan.joined:
                self._copies[var] = [self._copy(functions, each, place) for each, place in self.plan.copies[var]]
            elif self.graph.kernel(var) is not None:
                self._prepare(functions, var)
        return rebuild_main(functions.get(), self._visit)

    # --- the kernels ----------------------------------------------------------------------------------------------

    def _prepare(self, functions: relax.BlockBuilder, var: relax.Var) -> None:
        """Make the kernel for the call that `var` is bound to, unless it stays as it is."""
        func = self.graph.kernel(var)
        assert func is not None
        inputs = self.graph.arguments(var)
        results = [Result(var, index) for index in range(len(func.params) - len(inputs))]
        places = [(result, place) for result in results for place in self.plan.writes.get(result, [])]
        homes = [self._home(argument) for argument in inputs]
        if not places and not any(homes):
            return
        for position, home in enumerate(homes):
            func = func if home is None else read_slice(func, position, home.region)
        roots: dict[relax.Var, tirx.Var] = {}
        for result, place in places:
            func = write_slice(func, func.params[len(inputs) + result.index], place.part, place.region)
            roots[place.root] = func.params[-1]
        own = [result for result in results if result not in self.plan.homes]
        hidden = [func.params[len(inputs) + result.index] for result in results if result in self.plan.homes]
        kept = [func.params[len(inputs) + result.index] for result in own]
        func = hide_outputs(func, hidden)
        updated = [root for root in roots if root in self._begun]
        begun = [root for root in roots if root not in self._begun]
        self._begun |= set(begun)
        given, new, old = func.params[: len(inputs)], [roots[root] for root in begun], [roots[root] for root in updated]
        func = with_parameters(func, [*given, *old, *kept, *new])
        types = tuple(relax.TensorType(buffer.ty.shape, buffer.ty.dtype) for buffer in (*kept, *new, *old))
        symbol = functions.add_func(func, self.graph.values[var].args[0].name_hint)
        reads = tuple(None if home is None else home.root for home in homes)
        self._kernels[var] = _Kernel(symbol, reads, tuple(updated), tuple(own), tuple(begun), types)

    def _copy(self, functions: relax.BlockBuilder, value: relax.Expr, place: Place) -> _Kernel:
        func = copy_function(place.part, str(value.ty.dtype.dtype), place.region)
        home = self._home(value)
        func = func if home is None else read_slice(func, 0, home.region)
        joined = func.params[-1]
        types = (relax.TensorType(joined.ty.shape, joined.ty.dtype),)
        reads = (None if home is None else home.root,)
        return _Kernel(functions.add_func(func, "copy_part"), reads, (place.root,), (), (), types)

    def _home(self, value: relax.Expr) -> Place | None:
        result = self.graph.result(value)
        return None if result is None else self.plan.homes.get(result)

    # --- the calls ------------------------------------------------------------------------------------------------

    def _visit(self, builder: relax.BlockBuilder, var: relax.Var, value: relax.Expr) -> relax.Expr:
        """Return what `var` is now; what has no memory of its own any more gets any variable, which nothing reads."""
        before = self.graph.values[var]
        if var in self.graph.operands:
            made = self._concat(builder, var, value)
            self._concats[var] = made
            return made
        if var in self._kernels:
            return self._call_kernel(builder, var, value)
        if isinstance(before, relax.TupleGetItem) and before.tuple_value in self._kernels:
            return self._result(Result(before.tuple_value, int(before.index)))
        if call_name(before) == "reshape" and self._is_dead(before.args[0]):
            self._dead.add(var)
            return value.args[0]
        return value

    def _concat(self, builder: relax.BlockBuilder, var: relax.Var, value: relax.Call) -> relax.Var:
        if var in self.plan.joined:
            return self._join(builder, var, call_arguments(value))
        return self._call_kernel(builder, var, value) if var in self._kernels else builder.emit(value, var.name)

    def _is_dead(self, value: relax.Expr) -> bool:
        return value in self._dead or self._home(value) is not None

    def _result(self, result: Result) -> relax.Expr:
        home = self.plan.homes.get(result)
        return self._own[result] if home is None else self._current[home.root]

    def _join(
        self, builder: relax.BlockBuilder, concat: relax.Var, operands: Sequence[relax.Expr]
    ) -> relax.Expr:
        """Copy the parts that their kernels did not write; `operands` are those of the concatenation by now."""
        now = {**self._concats, **dict(zip(self.graph.arguments(concat), operands, strict=True))}
        names = self.writers.setdefault(concat, [])
        for operand in self.graph.operands[concat]:
            names += self.writers.get(operand, [])
        for kernel, (value, _) in zip(self._copies[concat], self.plan.copies[concat], strict=True):
            names.append(self._call(builder, kernel, [now[value]], "part").name)
        home = self.plan.homes.get(Result(concat, 0))
        return self._current[concat if home is None else home.root]

    def _call_kernel(self, builder: relax.BlockBuilder, var: relax.Var, value: relax.Call) -> relax.Expr:
        kernel = self._kernels[var]
        made = self._call(builder, kernel, call_arguments(value), var.name)
        self.renamed[var] = made.name
        for result, places in self.plan.writes.items():
            if result.call.same_as(var):
                for place in places:
                    self.writers.setdefault(place.concat, []).append(made.name)
        return self._result(Result(var, 0)) if isinstance(var.ty, relax.TensorType) else made

    def _call(
        self, builder: relax.BlockBuilder, kernel: _Kernel, arguments: Sequence[relax.Expr], name: str
    ) -> relax.Var:
        """Emit the call, which `arguments` were the inputs of before."""
        inputs = [
            argument if root is None else self._current[root]
            for argument, root in zip(arguments, kernel.reads, strict=True)
        ]
        inputs += [self._current[root] for root in kernel.updated]
        types = list(kernel.types)
        if kernel.updated:
            first = len(inputs) - len(kernel.updated)
            places = [*[-1] * (len(types) - len(kernel.updated)), *range(first, len(inputs))]
            call = relax.op.call_tir_inplace(kernel.symbol, relax.Tuple(inputs), places, types)
        else:
            call = relax.call_tir(kernel.symbol, relax.Tuple(inputs), types)
        made = builder.emit(call, name)
        single = len(types) == 1
        values = [made] if single else [builder.emit(relax.TupleGetItem(made, at)) for at in range(len(types))]
        self._own.update(zip(kernel.own, values, strict=False))
        self._current.update(zip([*kernel.begun, *kernel.updated], values[len(kernel.own) :], strict=True))
        return made
