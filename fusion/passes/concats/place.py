"""Writes the parts of concatenations where they belong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import tvm
from tvm import relax

from backends.memory_costs import MemoryCosts
from fusion.bindings import call_arguments, data_of
from fusion.facts import PassResult, TellingPass
from fusion.passes.concats.kernels import CalledKernel, copy_part, place_results
from fusion.passes.concats.placement import Placement, placement_of
from fusion.passes.concats.plan import ConcatPlan, WhyNotTaken, make_plan
from fusion.passes.concats.read import ConcatGraph, Result
from fusion.passes.rebuild import rebuild_main


@dataclass(frozen=True)
class PlaceConcats(TellingPass[Placement]):
    """`a = call_tir(f, x); b = call_tir(g, y); c = call_tir(concat, (a, b))`  ->
    `ca = call_tir(f', x); c = call_tir_inplace(g', (y, ca))`, where f' and g' write slices of the joined tensor.

    What else reads `a` takes it from the joined tensor where it can; otherwise f' writes it twice. Parts that no kernel
    can place are copied, one by one, unless that costs as much as the concatenation did.

    Attributes:
        why_not_taken: Says why no template takes a kernel.
        costs: Of the machine.
    """

    why_not_taken: WhyNotTaken
    costs: MemoryCosts
    name: str = "place_concats"

    def run(self, mod: tvm.IRModule) -> PassResult[Placement]:
        """Return the module with concatenations in place, and what became of them."""
        graph = ConcatGraph.read(mod)
        if not graph.operands:
            return PassResult(mod, Placement())
        plan = make_plan(graph, self.why_not_taken, self.costs)
        calls = _Calls(graph, plan)
        made = rebuild_main(mod, calls.visit) if plan.joined else mod
        return PassResult(made, placement_of(graph, plan, calls.named, calls.copies))


@dataclass
class _Calls:
    """Emits the calls of a plan's kernels, one by one.

    Attributes:
        named: Names of what those calls of the old `main` are bound to that changed.
        copies: Names of the calls that copy parts of each concatenation.
    """

    graph: ConcatGraph
    plan: ConcatPlan
    named: dict[relax.Var, str] = field(default_factory=dict, init=False)
    copies: dict[relax.Var, list[str]] = field(default_factory=dict, init=False)
    _joined: dict[relax.Var, relax.Var] = field(default_factory=dict, init=False)  # what holds a joined tensor
    _own: dict[Result, relax.Expr] = field(default_factory=dict, init=False)  # what holds a result of its own memory
    _concats: dict[relax.Var, relax.Expr] = field(default_factory=dict, init=False)  # what holds each concatenation

    def visit(self, builder: relax.BlockBuilder, var: relax.Var, value: relax.Expr) -> relax.Expr:
        """Return what `var` is now; what has no memory of its own any more gets any variable, which nothing reads."""
        before = self.graph.values[var]
        if var in self.plan.joined:
            self._concats[var] = self._join(builder, var, call_arguments(value))
            return self._concats[var]
        kernel = place_results(self.graph, self.plan, var, self._joined)
        if kernel is not None:
            value = self._call_kernel(builder, kernel, var, value)
        elif isinstance(before, relax.TupleGetItem) and before.tuple_value in self.named:
            return self._result(Result(before.tuple_value, int(before.index)))
        elif self._is_dead(var):
            return data_of(value)
        if var in self.graph.operands:
            self._concats[var] = value if isinstance(value, relax.Var) else builder.emit(value, var.name)
            return self._concats[var]
        return value

    def _is_dead(self, var: relax.Var) -> bool:
        """Return whether `var` is a reshape of what has no memory of its own any more."""
        part = self.graph.part(var)
        return bool(part.views) and part.result in self.plan.homes

    def _result(self, result: Result) -> relax.Expr:
        home = self.plan.homes.get(result)
        return self._own[result] if home is None else self._joined[home.root]

    def _join(self, builder: relax.BlockBuilder, concat: relax.Var, operands: Sequence[relax.Expr]) -> relax.Expr:
        """Copy the parts that their kernels did not write; `operands` are those of the concatenation by now."""
        now = {**self._concats, **dict(zip(self.graph.arguments(concat), operands, strict=True))}
        copies = [
            self._call(builder, copy_part(self.graph, self.plan, value, place), [now[value]], "part")
            for value, place in self.plan.copies[concat]
        ]
        self.copies[concat] = [made.name for made in copies]
        home = self.plan.homes.get(Result(concat, 0))
        return self._joined[concat if home is None else home.root]

    def _call_kernel(
        self, builder: relax.BlockBuilder, kernel: CalledKernel, var: relax.Var, value: relax.Call
    ) -> relax.Expr:
        """Emit the call that `var` was bound to; return what `var` is now."""
        made = self._call(builder, kernel, call_arguments(value), var.name)
        self.named[var] = made.name
        return self._result(Result(var, 0)) if isinstance(var.ty, relax.TensorType) else made

    def _call(
        self, builder: relax.BlockBuilder, kernel: CalledKernel, arguments: Sequence[relax.Expr], name: str
    ) -> relax.Var:
        """Emit the call, which `arguments` were the inputs of before."""
        inputs = [
            argument if root is None else self._joined[root]
            for argument, root in zip(arguments, kernel.reads, strict=True)
        ]
        inputs += [self._joined[root] for root in kernel.updated]
        symbol, types = builder.add_func(kernel.func, kernel.name), kernel.types
        if kernel.updated:
            first = len(inputs) - len(kernel.updated)
            places = [*[-1] * (len(types) - len(kernel.updated)), *range(first, len(inputs))]
            call = relax.op.call_tir_inplace(symbol, relax.Tuple(inputs), places, types)
        else:
            call = relax.call_tir(symbol, relax.Tuple(inputs), types)
        made = builder.emit(call, name)
        single = len(types) == 1
        values = [made] if single else [builder.emit(relax.TupleGetItem(made, at)) for at in range(len(types))]
        self._own.update(zip(kernel.own, values, strict=False))
        self._joined.update(zip([*kernel.begun, *kernel.updated], values[len(kernel.own) :], strict=True))
        return made
