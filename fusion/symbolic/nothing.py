"""Whether a model is the same where a size is 0.

An import leaves out operators whose results have no elements there, and those that know what they make of nothing: the
others have to be those of all sizes. What an operator makes of nothing is as ONNX says for those of `_OF_NOTHING`;
others would read what is not there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, combinations
from math import prod

import numpy as np
import tvm
from tvm import relax

from fusion.bindings import Bindings, callee, variables
from fusion.declined import Declined
from fusion.errors import FusionError
from fusion.extents import Extent, Sizes
from fusion.frontends.branched import MAIN, split_branches
from fusion.frontends.imported import TAKES_NOTHING, BranchCall, read_branch_call
from fusion.symbolic.found_model import FoundModel
from fusion.symbolic.imported_constants import ImportedConstants, constants_of
from fusion.symbolic.join_weights import grown
from fusion.symbolic.open_weights import OpenWeight
from fusion.symbolic.outline import OpenOutline, OperatorLine, outline
from fusion.symbolic.sized_imports import SizedImports
from fusion.tensors import same_bits

_OF_NOTHING = frozenset({"concat", "matmul", "max", "min", "nn.pad", "prod", "scatter_elements", "scatter_nd", "sum"})
"""Operators that may have an operand without elements and a result with some."""

_MOST = 5
"""Symbols that take 0: each more doubles the choices of them that are asked about."""


def bounds_with_nothing(
    importer: SizedImports, found: FoundModel, weights: Sequence[OpenWeight]
) -> tuple[dict[str, range], tuple[OpenWeight, ...]]:
    """Return the bounds of a model with 0 among the sizes of each symbol where it is the same one there, alone and
    together with the others, and `weights`, the constants that depend on sizes, too: with these, whose tables may begin
    at another place, as those of positions behind an empty cache do. Bounds with a symbol that is divided stay: what an
    import makes of `(0 - 3) // 2 + 1` columns is an error.
    """
    dims, bounds, told = found.dims, dict(found.bounds), tuple(weights)
    divided = {name for size in dims.derived if size.divisor > 1 for part in size.parts for name in part.symbols}
    empty = _Emptied(found, importer.read(found.near[0]), weights, _OF_NOTHING | importer.further_of_nothing)
    taking = list[str]()
    for symbol, taken in found.bounds.items():
        if taken[0] == taken.step == 1 and symbol not in divided and len(taking) < _MOST:
            sizes = empty.sizes([symbol])
            try:
                walk = empty.walk([symbol])
                for others in _some_of(taking):
                    empty.walk([*others, symbol])
                mod = importer.read(sizes)
                held, near = constants_of(mod), found.near[0]
                if not found.constants.stay_in(mod):
                    walk.check_made(found.constants, held)
            except (Declined, FusionError):
                continue
            larger = [weight if _is_same(weight, near, sizes) else _larger(weight, sizes, held) for weight in told]
            if None not in larger and found.graph.is_at(outline(mod), sizes, frozenset(walk.left)):
                bounds[symbol] = range(taken.stop)
                told = tuple(filter(None, larger))
                taking.append(symbol)
    return bounds, told


def _some_of(symbols: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield each choice of one or more."""
    return chain.from_iterable(combinations(symbols, count) for count in range(1, len(symbols) + 1))


@dataclass(frozen=True)
class _Emptied:
    """A model where some sizes are 0.

    Attributes:
        near: Its import at the sizes `found.near[0]`, which the others keep.
        weights: Its constants that depend on sizes.
        of_nothing: Operators that may make something of nothing.
    """

    found: FoundModel
    near: tvm.IRModule
    weights: Sequence[OpenWeight]
    of_nothing: Collection[str]

    def sizes(self, symbols: Sequence[str]) -> Sizes:
        """Return the sizes where those of `symbols` are 0."""
        return self.found.dims.all_sizes({**self.found.near[0], **dict.fromkeys(symbols, 0)})

    def walk(self, symbols: Sequence[str]) -> _Walk:
        """Return the walk through the model, which tells what an import may leave out where the sizes of `symbols` are
        0.

        Raises:
            Declined: An operator makes something of nothing, for which there is no rule.
        """
        sizes = self.sizes(symbols)
        near = self.found.near[0]
        if any(extent.at(sizes) < 0 for weight in self.weights for extent in weight.shape):
            raise Declined("a constant would have less than no elements")
        if any(_is_before_first(weight, sizes) > _is_before_first(weight, near) for weight in self.weights):
            raise Declined("the place before the first of an axis would be read")
        walk = _Walk.of(self.near, self.found.graph, sizes, self.of_nothing)
        given = zip(walk.graphs[MAIN].params, self.found.dims.shapes(sizes).values(), strict=False)
        nothing = {param for param, shape in given if 0 in shape}
        walk.through(MAIN, nothing, set(nothing))
        return walk


def _is_before_first(weight: OpenWeight, sizes: Sizes) -> bool:
    """Return whether whole numbers, which may be places in an axis, are less than 0, as the last place of none is."""
    if weight.table.dtype.kind != "i" or not weight.covers(sizes):
        return False
    return bool((weight.at(sizes) < 0).any())


def _is_same(weight: OpenWeight, one: Sizes, other: Sizes) -> bool:
    """Return whether a constant is the same at both sizes, as it depends on none that differs."""
    return all(extent.at(one) == extent.at(other) for extent in (*weight.shape, *weight.source.extents))


def _larger(weight: OpenWeight, sizes: Sizes, held: Sequence[np.ndarray]) -> OpenWeight | None:
    """Return a constant with what an import that has those `held` has of its table at `sizes`; None where none of these
    is the constant."""
    larger = chain([weight], (grown(weight, value, sizes) for value in held))
    return next((each for each in larger if each is not None and _is_held(each, sizes, held)), None)


def _is_held(weight: OpenWeight, sizes: Sizes, held: Sequence[np.ndarray]) -> bool:
    """Return whether a constant has no elements at `sizes`, or is among those that an import has there."""
    if any(extent.at(sizes) == 0 for extent in weight.shape):
        return True
    if not weight.covers(sizes):
        return False
    value = weight.at(sizes)
    return any(same_bits(value, each) for each in held)


@dataclass
class _Walk:
    """Follows what has no elements through a model and its branches.

    Attributes:
        graphs: By name.
        lines: Of each of them, with the extents at all sizes.
        firsts: The place of the first of these lines among those of all.
        of_nothing: Operators that may make something of nothing.
        functions: Those of the module that may, too.
        left: Places of operators that an import may leave out.
        filled: Operators whose results have elements, by place.
    """

    graphs: Mapping[str, relax.Function]
    lines: Mapping[str, Sequence[tuple[OperatorLine, tuple[Extent, ...]]]]
    firsts: Mapping[str, int]
    sizes: Sizes
    of_nothing: Collection[str]
    functions: Collection[str]
    left: set[int] = field(default_factory=set, init=False)
    filled: dict[int, relax.Expr] = field(default_factory=dict, init=False)

    @classmethod
    def of(cls, mod: tvm.IRModule, graph: OpenOutline, sizes: Sizes, of_nothing: Collection[str]) -> _Walk:
        """Return a walk through `mod`, the operators of which are those of `graph`."""
        main, branches = split_branches(mod)
        graphs = {**{name: branch[MAIN] for name, branch in branches.items()}, MAIN: main[MAIN]}
        counts = [len(Bindings.of(each).all) + 1 for each in graphs.values()]  # what a graph returns is a line too
        firsts = dict(zip(graphs, accumulate(counts, initial=0), strict=False))
        lines = {name: graph.lines[firsts[name] :][:count] for name, count in zip(graphs, counts, strict=True)}
        functions = {str(name.name_hint) for name, each in mod.functions.items() if TAKES_NOTHING in (each.attrs or ())}
        return cls(graphs, lines, firsts, sizes=sizes, of_nothing=of_nothing, functions=functions)

    def through(self, name: str, nothing: set[relax.Var], known: set[relax.Var]) -> None:
        """Walk through a graph, of the parameters of which those have no elements, and an import knows these.

        Raises:
            Declined: An operator makes something of nothing, for which there is no rule.
        """
        bindings, lines = Bindings.of(self.graphs[name]).all, self.lines[name]
        for place, (binding, (line, extents)) in enumerate(zip(bindings, lines, strict=False), self.firsts[name]):
            read = set(variables(binding.value))
            counts = _elements(binding.value, extents, self.sizes)
            call = read_branch_call(binding.value)
            if call is not None:
                self._through_branches(call, nothing, known, are_empty=bool(counts) and not any(counts))
            if counts and not any(counts):
                nothing.add(binding.var)
            elif isinstance(binding.value, relax.Tuple) or call is not None:
                pass
            elif not all(counts) or (read & nothing and not self._takes_nothing(line.operator, binding.value)):
                raise Declined(f"{line.operator} makes something of nothing")
            if binding.var not in nothing:
                self.filled[place] = binding.value
            if binding.var in nothing or read <= known:
                known.add(binding.var)
                self.left.add(place)
            elif line.operator == "concat" and len(read - nothing) == 1:
                self.left.add(place)

    def _takes_nothing(self, operator: str, value: relax.Call) -> bool:
        """Return whether what `value` calls may have an operand without elements."""
        return operator in self.of_nothing or (operator == "call_tir" and callee(value).name_hint in self.functions)

    def check_made(self, constants: ImportedConstants, held: Sequence[np.ndarray]) -> None:
        """Raise where `constants` that may be made of sizes may be other ones than an import has at 0, which are `held`
        there, at other places; of an operator that it may leave out it does not tell.

        Raises:
            Declined: They may, as where what decides is whether there is anything.
        """
        for place, value in self.filled.items():
            made = constants.made(value)
            if made and (place in self.left or not all(any(same_bits(each, known) for known in held) for each in made)):
                raise Declined("a constant may be another one there")

    def _through_branches(
        self, call: BranchCall, nothing: Collection[relax.Var], known: set[relax.Var], *, are_empty: bool
    ) -> None:
        """Walk through the branches of a call, all results of which may be empty."""
        for name in (call.then, call.otherwise):
            given = list(zip(self.graphs[name].params, call.arguments, strict=True))
            empty = {param for param, value in given if value in nothing}
            self.through(name, empty, {param for param, value in given if known.issuperset(variables(value))})
            if are_empty:
                self._leave(name)

    def _leave(self, name: str) -> None:
        """Note that an import may leave out a branch, and those in it."""
        first = self.firsts[name]
        self.left.update(range(first, first + len(self.lines[name])))
        for binding in Bindings.of(self.graphs[name]).all:
            if (call := read_branch_call(binding.value)) is not None:
                self._leave(call.then)
                self._leave(call.otherwise)


def _elements(value: relax.Expr, extents: Sequence[Extent], sizes: Sizes) -> list[int]:
    """Return how many elements each tensor of a result has.

    Raises:
        Declined: A number in it is below 0, as the place before the first is.
    """
    numbers = [extent.at(sizes) for extent in extents]
    if any(number < 0 and not extent.is_static for number, extent in zip(numbers, extents, strict=True)):
        raise Declined("a size would be less than 0")
    counts, begin = [], 0
    for rank in _ranks(value.ty):
        counts.append(prod(numbers[begin : begin + rank]))
        begin += rank
    return counts


def _ranks(ty: tvm.ir.Type) -> Iterator[int]:
    """Yield the rank of each tensor in what an operator returns."""
    if isinstance(ty, tvm.ir.TupleType):
        for field in ty.fields:
            yield from _ranks(field)
    elif isinstance(ty, relax.TensorType):
        yield int(ty.ndim)
