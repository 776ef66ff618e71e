"""A lowered model as tasks that devices may run, and any of them as a model of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import tvm
from tvm import relax

from fusion.bindings import Bindings, all_bindings, call_name, callee
from fusion.lowered import Lowered
from fusion.module.views import is_reshape
from fusion.shapes import is_static, known_shape
from fusion.tensors import tensor_bytes

_CALLS = ("call_tir", "call_tir_inplace")


@dataclass(frozen=True, eq=False)
class GraphStep:
    """A binding, with those that take its result apart.

    Attributes:
        kernels: Names of the kernels in it; several of an If, of which a run takes some.
    """

    bindings: tuple[relax.VarBinding, ...]
    reads: tuple[relax.Var, ...]
    kernels: tuple[str, ...]

    @property
    def writes(self) -> tuple[relax.Var, ...]:
        """What later steps may read."""
        return tuple(binding.var for binding in self.bindings)

    @property
    def only_renames(self) -> bool:
        """Whether it computes nothing: another shape of the same memory, or fields of a tuple."""
        return all(not isinstance(b.value, relax.Call | relax.If) or is_reshape(b.value) for b in self.bindings)


@dataclass(frozen=True, eq=False)
class Part:
    """Some tasks as a model of their own.

    Attributes:
        lowered: Its `main` takes `reads`, then the weights, and returns `writes`.
    """

    lowered: Lowered
    reads: tuple[relax.Var, ...]
    writes: tuple[relax.Var, ...]


@dataclass(frozen=True, eq=False)
class CutGraph:
    """A model as tasks: runs of its steps between which it may be cut.

    It may not be cut where anything but a tensor of known size would go from one side to the other. Between what makes
    a tensor and what writes a slice of it in place it may be: nobody reads that slice before, and each request has
    memory of its own for what goes from part to part.
    """

    lowered: Lowered
    n_inputs: int

    @cached_property
    def main(self) -> relax.Function:
        """The model without aliases."""
        passes = [relax.transform.ToNonDataflow(), relax.transform.CanonicalizeBindings()]
        return tvm.transform.Sequential(passes)(self.lowered.mod)["main"]

    @cached_property
    def results(self) -> tuple[relax.Var, ...]:
        """What the model returns: inputs and weights among it where it returns those."""
        return tuple(Bindings.of(self.main).results())

    @property
    def inputs(self) -> tuple[relax.Var, ...]:
        """What the model takes."""
        return tuple(self.main.params[: self.n_inputs])

    @cached_property
    def weights(self) -> dict[relax.Var, tvm.runtime.Tensor]:
        """The weights."""
        return dict(zip(self.main.params[self.n_inputs :], self.lowered.weights, strict=True))

    @cached_property
    def tasks(self) -> tuple[tuple[GraphStep, ...], ...]:
        """The tasks, each behind all that it reads."""
        steps = self._steps
        edges = [at for at in range(1, len(steps)) if self._may_cut[at]]
        return tuple(tuple(steps[a:b]) for a, b in zip([0, *edges], [*edges, len(steps)], strict=True) if steps)

    @cached_property
    def _steps(self) -> list[GraphStep]:
        found, place = list[list[relax.VarBinding]](), dict[relax.Var, int]()
        results = Bindings.of(self.main).result
        for binding in all_bindings(self.main.body):
            value = binding.value
            if isinstance(value, relax.Tuple) and binding.var.same_as(results):
                continue
            source = value.tuple_value if isinstance(value, relax.TupleGetItem) else None
            place[binding.var] = place[source] if source in place else len(found)
            if source in place:
                found[place[source]].append(binding)
            else:
                found.append([binding])
        return [_step(bindings) for bindings in found]

    @cached_property
    def _may_cut(self) -> list[bool]:
        """Whether the model may be cut before each step."""
        made = {var: at for at, step in enumerate(self._steps) for var in step.writes}
        allowed = [True] * len(self._steps)
        for at, step in enumerate(self._steps):
            for var in step.reads:
                if var in made and not is_static(var):
                    allowed[made[var] + 1 : at + 1] = [False] * (at - made[var])
        return allowed

    @cached_property
    def made_by(self) -> dict[relax.Var, int]:
        """The task that makes each variable."""
        return {var: at for at, task in enumerate(self.tasks) for step in task for var in step.writes}

    @cached_property
    def _read_by(self) -> dict[relax.Var, set[int]]:
        found: dict[relax.Var, set[int]] = {}
        for at, task in enumerate(self.tasks):
            for step in task:
                for var in step.reads:
                    found.setdefault(var, set()).add(at)
        return found

    def edges(self) -> dict[tuple[int, int], int]:
        """Return the bytes that go from each task to each other that reads of it."""
        found: dict[tuple[int, int], int] = {}
        for var, source in self.made_by.items():
            for target in self._read_by.get(var, set()) - {source}:
                found[source, target] = found.get((source, target), 0) + bytes_of(var)
        return found

    def memory(self, task: int, requests: int) -> int:
        """Return the bytes that a task keeps where it runs, or more: its weights, what it makes while it computes, and
        for each of `requests` under way what it reads of the model's inputs and what it makes."""
        steps = self.tasks[task]
        read = {var for step in steps for var in step.reads}
        weights = sum(bytes_of(var) for var in read & set(self.weights))
        made = sum(bytes_of(var) for step in steps for var in step.writes)
        return weights + made + requests * (made + sum(bytes_of(var) for var in read & set(self.inputs)))

    def copies(self, task: int) -> list[int]:
        """Return the bytes of each input of the model that a task reads, and of each result that it makes."""
        steps = self.tasks[task]
        read = {var for step in steps for var in step.reads} & set(self.inputs)
        made = {var for step in steps for var in step.writes} & set(self.results)
        return [bytes_of(var) for var in (*read, *made)]

    def part(self, tasks: Sequence[int]) -> Part:
        """Return `tasks`, in order, as a model of their own."""
        steps, inside = [step for task in tasks for step in self.tasks[task]], set(tasks)
        read = dict.fromkeys(var for step in steps for var in step.reads)
        made = {var for step in steps for var in step.writes}
        weights = [var for var in read if var in self.weights]
        reads = tuple(var for var in read if var not in made and var not in self.weights)
        writes = tuple(
            var for step in steps for var in step.writes
            if var in self.results or self._read_by.get(var, set()) - inside
        )  # fmt: skip
        main = _function(steps, [*reads, *weights], writes, self.main)
        lowered = replace(
            self.lowered,
            mod=_module(main, {name for step in steps for name in step.kernels}, self.lowered.mod),
            weights=tuple(self.weights[var] for var in weights),
        )
        return Part(lowered, reads, writes)


def bytes_of(var: relax.Var) -> int:
    """Return the size of a tensor that may go between tasks."""
    extents = known_shape(var)
    return 0 if extents is None else tensor_bytes(extents, str(var.ty.dtype))


def _step(bindings: Sequence[relax.VarBinding]) -> GraphStep:
    made = {binding.var for binding in bindings}
    reads = (var for binding in bindings for var in relax.analysis.free_vars(binding.value))
    kernels = tuple(name for binding in bindings for name in _kernels(binding.value))
    return GraphStep(tuple(bindings), tuple(dict.fromkeys(var for var in reads if var not in made)), kernels)


def _kernels(value: relax.Expr) -> Iterator[str]:
    if isinstance(value, relax.If):
        for branch in (value.true_branch, value.false_branch):
            for binding in all_bindings(branch):
                yield from _kernels(binding.value)
    elif call_name(value) in _CALLS:
        yield str(callee(value).name_hint)


def _function(
    steps: Sequence[GraphStep], params: Sequence[relax.Var], results: Sequence[relax.Var], main: relax.Function
) -> relax.Function:
    bindings = [binding for step in steps for binding in step.bindings]
    if len(results) == 1:  # servers of TVM RPC return tensors, and no tuples
        (result,), kind = results, results[0].ty
    else:
        kind = relax.TupleType([each.ty for each in results])
        result = relax.Var("results", kind)
        bindings.append(relax.VarBinding(result, relax.Tuple(list(results))))
    body = relax.SeqExpr([relax.BindingBlock(bindings)], result)
    return relax.Function(list(params), body, kind, main.is_pure, main.attrs)


def _module(main: relax.Function, kernels: set[str], mod: tvm.IRModule) -> tvm.IRModule:
    kept = {name: func for name, func in mod.functions.items() if str(name.name_hint) in kernels}
    return tvm.IRModule({**kept, mod.get_global_var("main"): main}, attrs=mod.attrs)
