"""Whether a model is the same where a size is 0.

An import leaves out operators whose results have no elements there, and those that know what they make of nothing: the
others have to be those of all sizes. What an operator makes of nothing is as ONNX says for those of `_OF_NOTHING`;
others ONNX Runtime refuses, as the largest of no numbers, or they would read what is not there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from math import prod

import numpy as np
import tvm
from tvm import relax

from fusion.bindings import Bindings, variables
from fusion.declined import Declined
from fusion.errors import FusionError
from fusion.extents import Extent, Sizes
from fusion.frontends.branched import graphs_of
from fusion.symbolic.imported_constants import constants_of
from fusion.symbolic.open_weights import OpenWeight
from fusion.symbolic.outline import OpenOutline, outline
from fusion.symbolic.sized_imports import FoundModel, SizedImports

_OF_NOTHING = frozenset({"concat", "matmul", "sum"})
"""Operators that may have an operand without elements and a result with some."""

_MOST = 5
"""Symbols that take 0: each more doubles the choices of them that are asked about."""


def bounds_with_nothing(
    importer: SizedImports, found: FoundModel, weights: Sequence[OpenWeight]
) -> dict[str, range]:
    """Return the bounds of a model with 0 among the sizes of each symbol where it is the same one there, alone and
    together with the others, and `weights`, the constants that depend on sizes, too. Those with a symbol that is
    divided stay: what an import makes of `(0 - 3) // 2 + 1` columns is an error.
    """
    dims, bounds = found.dims, dict(found.bounds)
    divided = {name for size in dims.derived if size.divisor > 1 for part in size.parts for name in part.symbols}
    empty = _Emptied(found, importer.read(found.near[0]), weights)
    taking = list[str]()
    for symbol, taken in found.bounds.items():
        if taken[0] == taken.step == 1 and symbol not in divided and len(taking) < _MOST:
            sizes = empty.sizes([symbol])
            try:
                left = empty.left_out([symbol])
                for others in _some_of(taking):
                    empty.left_out([*others, symbol])
                mod = importer.read(sizes)
            except (Declined, FusionError):
                continue
            held, near = constants_of(mod), found.near[0]
            told = all(_is_same(weight, near, sizes) or _is_held(weight, sizes, held) for weight in weights)
            if told and found.graph.is_at(outline(mod), sizes, left):
                bounds[symbol] = range(taken.stop)
                taking.append(symbol)
    return bounds


def _some_of(symbols: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield each choice of one or more."""
    return chain.from_iterable(combinations(symbols, count) for count in range(1, len(symbols) + 1))


@dataclass(frozen=True)
class _Emptied:
    """A model where some sizes are 0.

    Attributes:
        near: Its import at the sizes `found.near[0]`, which the others keep.
        weights: Its constants that depend on sizes.
    """

    found: FoundModel
    near: tvm.IRModule
    weights: Sequence[OpenWeight]

    def sizes(self, symbols: Sequence[str]) -> Sizes:
        """Return the sizes where those of `symbols` are 0."""
        return self.found.dims.all_sizes({**self.found.near[0], **dict.fromkeys(symbols, 0)})

    def left_out(self, symbols: Sequence[str]) -> frozenset[int]:
        """Return which operators an import may leave out where the sizes of `symbols` are 0.

        Raises:
            Declined: An operator makes something of nothing, for which there is no rule.
        """
        sizes = self.sizes(symbols)
        near = self.found.near[0]
        if any(_is_before_first(weight, sizes) > _is_before_first(weight, near) for weight in self.weights):
            raise Declined("the place before the first of an axis would be read")
        return _left_out(self.near, self.found.graph, list(self.found.dims.shapes(sizes).values()), sizes)


def _is_before_first(weight: OpenWeight, sizes: Sizes) -> bool:
    """Return whether whole numbers, which may be places in an axis, are less than 0, as the last place of none is."""
    if weight.table.dtype.kind != "i" or not weight.covers(sizes):
        return False
    return bool((weight.at(sizes) < 0).any())


def _is_same(weight: OpenWeight, one: Sizes, other: Sizes) -> bool:
    """Return whether a constant is the same at both sizes, as it depends on none that differs."""
    return all(extent.at(one) == extent.at(other) for extent in (*weight.shape, *weight.source.extents))


def _is_held(weight: OpenWeight, sizes: Sizes, held: Sequence[np.ndarray]) -> bool:
    """Return whether a constant has no elements at `sizes`, or is among those that an import has there."""
    if any(extent.at(sizes) == 0 for extent in weight.shape):
        return True
    if not weight.covers(sizes):
        return False
    value = weight.at(sizes)
    return any(value.shape == each.shape and np.array_equal(value, each) for each in held)


def _left_out(
    near: tvm.IRModule, graph: OpenOutline, shapes: Sequence[Sequence[int]], sizes: Sizes
) -> frozenset[int]:
    """Return which operators an import may leave out.

    Raises:
        Declined: One makes something of nothing, for which there is no rule.
    """
    *branches, main = graphs_of(near)
    if branches:
        raise Declined("it has branches, each with nothings of its own")
    nothing = {var for var, shape in zip(main.params, shapes, strict=False) if 0 in shape}
    known, left = set(nothing), set[int]()
    for place, (binding, (line, extents)) in enumerate(zip(Bindings.of(main).all, graph.lines, strict=False)):
        read = set(variables(binding.value))
        counts = _elements(binding.value, extents, sizes)
        if counts and not any(counts):
            nothing.add(binding.var)
        elif isinstance(binding.value, relax.Tuple):
            pass
        elif not all(counts) or (read & nothing and line.operator not in _OF_NOTHING):
            raise Declined(f"{line.operator} makes something of nothing")
        if binding.var in nothing or read <= known:
            known.add(binding.var)
            left.add(place)
        elif line.operator == "concat" and len(read - nothing) == 1:
            left.add(place)
    return frozenset(left)


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
