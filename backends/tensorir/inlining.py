"""Decide which stages live in memory, and put the others into the expressions that use them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import tirx
from tvm.ir import Call, Op, TensorLoad, Var
from tvm_ffi import StructuralKey
from tvm_ffi.structural import StructuralMutator

from backends.tensorir.open_analyzer import Analyzer
from backends.tensorir.stages import Stage, loads, substitute
from fusion.structural import contains, find, mutate, walk

Expr = Any
Place = Callable[[Var, Sequence[Expr]], Expr]

# Costs in simple vector operations: a transcendental has 15 to 30 (vector_math.py), a division takes 16 cycles.
_CALL_COST = 20
_DIVISION_COST = 8
_CHEAP_CALLS = frozenset({"if_then_else", "likely", "fabs", "abs", "shift_left", "shift_right", "reinterpret",
                          "bitwise_and", "bitwise_or", "bitwise_xor", "floor", "ceil", "isnan"})  # fmt: skip
# A stage stays in memory when computing it again costs more than a store and a load of its value.
_KEEP_ABOVE = 4


def operation_cost(value: Expr) -> int:
    """Return the cost of evaluating an expression once, in simple vector operations, its loads included.

    What only moves data (a transpose, a padding) costs nothing.
    """
    loads_and_branches = operations = 0

    def count(node: Any) -> None:
        nonlocal operations, loads_and_branches
        if isinstance(node, TensorLoad) or (isinstance(node, Call) and is_branch(node)):
            loads_and_branches += 1
        elif isinstance(node, Call):
            cheap = isinstance(node.op, Op) and node.op.name.rpartition(".")[2] in _CHEAP_CALLS
            operations += 1 if cheap else _CALL_COST
        elif str(node.ty.dtype).startswith("float"):
            operations += _DIVISION_COST if isinstance(node, tirx.Div) else 1

    nodes = (Call, TensorLoad, tirx.Div, tirx.Add, tirx.Sub, tirx.Mul, tirx.Max, tirx.Min, tirx.Select)
    walk(value, (nodes, count))
    return operations + loads_and_branches if operations else 0


def inline_stages(stages: list[Stage], outputs: set[Var]) -> dict[Var, Stage]:
    """Return the stages to inline, by buffer: no output, no reduction, and cheaper to compute again than to keep."""
    inlined: dict[Var, Stage] = {}
    costs = _inclusive_costs(stages, outputs)
    uses_of = {stage.buffer: _Uses() for stage in stages}
    for stage in reversed(stages):
        mine = uses_of[stage.buffer]
        again = mine.evaluations / max(stage.iterations, 1) - 1
        keep = stage.buffer in outputs or stage.combine is not None or costs[stage.buffer] * again > _KEEP_ABOVE
        if keep or _guards_innermost(stage, stages):
            mine = _Uses.of_root(stage)
        else:
            inlined[stage.buffer] = stage
        mine.pass_on(stage, uses_of)
    return inlined


def _inclusive_costs(stages: list[Stage], outputs: set[Var]) -> dict[Var, int]:
    """Return the cost of each stage with all of its producers inlined that could be."""
    costs: dict[Var, int] = {}
    for stage in stages:
        below = {load.source for load in loads(stage.value)} - outputs
        costs[stage.buffer] = operation_cost(stage.value) + sum(costs.get(buffer, 0) for buffer in below)
        if stage.combine is not None:
            costs[stage.buffer] = 0
    return costs


@dataclass
class _Uses:
    """Where a stage's value is needed: (stage in memory, index) pairs, each evaluated once if it is inlined."""

    sites: dict[Any, tuple[Stage, list[Expr]]] = field(default_factory=dict)

    @classmethod
    def of_root(cls, stage: Stage) -> _Uses:
        return cls({stage.buffer: (stage, [axis.var for axis in stage.spatial])})

    @property
    def evaluations(self) -> int:
        return sum(root.iterations for root, _ in self.sites.values())

    def pass_on(self, stage: Stage, uses_of: dict[Var, _Uses]) -> None:
        """Record at each producer of `stage` the indices at which it is needed."""
        for root, indices in self.sites.values():
            at = dict(zip((axis.var for axis in stage.spatial), indices, strict=True))
            for load in loads(substitute(stage.value, at)):
                if load.source in uses_of:
                    key = (root.buffer, *(StructuralKey(index) for index in load.indices))
                    uses_of[load.source].sites[key] = (root, list(load.indices))


def _guards_innermost(stage: Stage, stages: list[Stage]) -> bool:
    """Return whether a reduction reads a padding whose condition depends on the innermost axis.

    Inlined it would be a branch per vector lane; kept, its pieces are plain copies and the window reads need no guard.
    """
    if not stage.spatial or not any(
        consumer.reduce and any(load.source.same_as(stage.buffer) for load in loads(consumer.value))
        for consumer in stages
    ):
        return False
    return any(uses(condition, stage.spatial[-1].var) for condition in guards(stage.value))


def is_branch(call: Call) -> bool:
    """Return whether a call is `if_then_else`, of which only one branch is evaluated."""
    return isinstance(call.op, Op) and call.op.name.rpartition(".")[2] == "if_then_else"


def guards(value: Expr) -> list[Expr]:
    """Return the conditions of every `if_then_else` in an expression."""
    return [condition for condition, _, _ in (call.args for call in find(value, Call) if is_branch(call))]


def uses(value: Expr, var: Var) -> bool:
    """Return whether `var` occurs in an expression."""
    return contains(value, (Var, var.same_as))


@dataclass
class Resolver:
    """Turns a stage's expression into one that loads only from memory.

    Each inlined stage is computed once per distinct index and bound to a variable, so that chains such as
    `x * sigmoid(x)` stay linear in size. What stands in a branch of `if_then_else` is bound inside that branch only,
    as its loads may be out of bounds outside.

    Attributes:
        inlined: The stages that are not in memory.
        place: Gives the load of an element of a buffer that is.
        analyzer: Knows the ranges of all loop variables; decides branch conditions.
        bindings: Variables to be bound, in order, before the resolved expression is evaluated.
    """

    inlined: Mapping[Var, Stage]
    place: Place
    analyzer: Analyzer
    bindings: list[tuple[Var, Expr]] = field(default_factory=list)
    known: dict[Any, Expr] = field(default_factory=dict)

    def resolve(self, value: Expr, at: dict[Var, Expr]) -> Expr:
        """Return `value` with its axes replaced as in `at` and its loads resolved."""
        return self._mutate(substitute(value, at))

    def _mutate(self, value: Expr) -> Expr:
        return mutate(value, [(TensorLoad, self._load), (Call, self._call), (tirx.Cast, self._cast)])

    def _load(self, load: TensorLoad, mutator: StructuralMutator) -> Expr:
        indices = [self.analyzer.simplify(self._mutate(index)) for index in load.indices]
        stage = self.inlined.get(load.source)
        if stage is None:
            return self.place(load.source, indices)
        key = (load.source, *(StructuralKey(index) for index in indices))
        if key not in self.known:
            axes = [axis.var for axis in stage.spatial]
            self.known[key] = self._bind(self.resolve(stage.value, dict(zip(axes, indices, strict=True))))
        return self.known[key]

    def _bind(self, value: Expr) -> Expr:
        # a vector of booleans cannot be bound: VectorizeLoop fails on it
        if isinstance(value, Var | TensorLoad | tirx.FloatImm | tirx.IntImm) or str(value.ty.dtype) == "bool":
            return value
        var = tirx.Var(f"v{len(self.bindings)}", value.ty)
        self.bindings.append((var, value))
        return var

    def _call(self, call: Call, mutator: StructuralMutator) -> Expr:
        if not is_branch(call):
            return mutator.default_mutate(call)
        asked, then, otherwise = call.args
        condition = self.analyzer.simplify(self._mutate(asked))
        if isinstance(condition, tirx.IntImm):
            return self._mutate(then if int(condition.value) else otherwise)
        return tirx.if_then_else(condition, self._branch(then), self._branch(otherwise))

    def _cast(self, cast: tirx.Cast, mutator: StructuralMutator) -> Expr:
        """A boolean becomes a number by `Select`: TVM's interval analysis fails on comparisons of vectors elsewhere."""
        if str(cast.value.ty.dtype) != "bool":
            return mutator.default_mutate(cast)
        dtype = str(cast.ty.dtype)
        return tirx.Select(self._mutate(cast.value), tirx.const(1, dtype), tirx.const(0, dtype))

    def _branch(self, value: Expr) -> Expr:
        inner = Resolver(self.inlined, self.place, self.analyzer, [], dict(self.known))
        result = inner._mutate(value)
        for var, bound in reversed(inner.bindings):
            result = tirx.Let(var, bound, result)
        return result
