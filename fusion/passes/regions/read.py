"""A function of Relax as a graph to be covered: which operators there are, and who takes which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import tvm
from tvm import relax

from backends.backend import GraphLibrary
from fusion.bindings import Bindings, variables
from fusion.shapes import known_extents
from fusion.tensors import tensor_bytes
from placement.cover.problem import CoverGraph, CoverValue


@dataclass(frozen=True, eq=False)
class RegionGraph:
    """The bindings of a function.

    Attributes:
        operators: The bindings of each operator: a call, and the fields that are taken from its result where that is a
            tuple.
        graph: What they read of each other.
        result: What the function returns.
        mod: The module of the function, `main`.
        origins: Names of operators in the imported model, where they have others now: that which makes the only result
            has the name of this.
    """

    operators: tuple[tuple[relax.Binding, ...], ...]
    graph: CoverGraph
    result: relax.Expr
    mod: tvm.IRModule
    origins: Mapping[str, str] = field(default_factory=dict)

    def why_not_any(self, place: int) -> str:
        """Return why no library runs an operator; "" where one may."""
        return _why_not_any(self.operators[place])

    def why_not(self, library: GraphLibrary) -> Mapping[int, str]:
        """Return why `library` does not run some operators, by their positions."""
        reasons = ((place, _why_not(operator, library)) for place, operator in enumerate(self.operators))
        return {place: reason for place, reason in reasons if reason}

    @cached_property
    def readers(self) -> Mapping[relax.Var, frozenset[int]]:
        """The operators that read each variable."""
        found: dict[relax.Var, set[int]] = {}
        for place, operator in enumerate(self.operators):
            for binding in operator:
                for read in variables(binding.value):
                    found.setdefault(read, set()).add(place)
        return {var: frozenset(places) for var, places in found.items()}

    @cached_property
    def returned(self) -> frozenset[relax.Var]:
        """The variables that the result is made of."""
        return frozenset(variables(self.result))

    def bindings(self, operators: frozenset[int]) -> list[relax.Binding]:
        """Return the bindings of some operators, in order."""
        return [binding for place in sorted(operators) for binding in self.operators[place]]


def read_regions(mod: tvm.IRModule) -> RegionGraph:
    """Return the graph of `main`."""
    main = mod["main"]
    bindings = Bindings.of(main)
    operators = _operators(bindings)
    producers = {binding.var: place for place, operator in enumerate(operators) for binding in operator}
    places = {var: place for place, var in enumerate((*main.params, *producers))}
    values = tuple(CoverValue(_bytes(var.ty), producers.get(var), var in bindings.returned) for var in places)
    reads = tuple(tuple(sorted({places[read] for read in _read_outside(operator)})) for operator in operators)
    names = tuple(str(operator[0].var.name) for operator in operators)
    return RegionGraph(operators, CoverGraph(reads, values, names), bindings.result, mod)


def _operators(bindings: Bindings) -> tuple[tuple[relax.Binding, ...], ...]:
    """Return bindings, those of the fields of a call's result with the call."""
    found: dict[relax.Var, list[relax.Binding]] = {}
    for binding in bindings.all:
        value = binding.value
        whole = value.tuple_value if isinstance(value, relax.TupleGetItem) else None
        if whole in found and isinstance(found[whole][0].value, relax.Call):
            found[whole].append(binding)
        else:
            found[binding.var] = [binding]
    return tuple(map(tuple, found.values()))


def _read_outside(operator: Sequence[relax.Binding]) -> Iterator[relax.Var]:
    own = {binding.var for binding in operator}
    return (read for binding in operator for read in variables(binding.value) if read not in own)


def _why_not(operator: Sequence[relax.Binding], library: GraphLibrary) -> str:
    return _why_not_any(operator) or library.why_not_taken(operator[0].value)


def _why_not_any(operator: Sequence[relax.Binding]) -> str:
    call = operator[0].value
    if not isinstance(call, relax.Call) or isinstance(operator[0], relax.MatchCast):
        return "it is no call of an operator"
    if isinstance(call.ty, relax.TupleType) and len(operator) == 1:
        return "its result is a tuple as a whole"
    for kind in _tensors([call.ty, *(argument.ty for argument in call.args)]):
        extents = known_extents(kind.shape)
        if extents is None:
            return "only the run knows its shapes"
        if not prod(extents):
            return "it has no elements"
    return ""


def _tensors(kinds: Sequence[relax.Type]) -> Iterator[relax.TensorType]:
    for kind in kinds:
        if isinstance(kind, relax.TupleType):
            yield from _tensors(kind.fields)
        elif isinstance(kind, relax.TensorType):
            yield kind


def _bytes(kind: relax.Type) -> float:
    extents = known_extents(kind.shape) if isinstance(kind, relax.TensorType) else None
    return 0.0 if extents is None else float(tensor_bytes(extents, str(kind.dtype)))
