"""Which of the constants that depend on sizes one is, and the table that it is a part of: imports at other sizes tell
both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fusion.extents import Sizes
from fusion.symbolic.fit import NoTableError
from fusion.symbolic.join_weights import grown
from fusion.symbolic.open_dims import OpenDims
from fusion.symbolic.open_weights import OpenWeight
from fusion.tensors import same_bits

Constants = Callable[[Sizes], "Sequence[np.ndarray] | None"]
"""Those of a model at sizes of the inputs, in order; None where it is another one there."""


def settle(rivals: Sequence[OpenWeight], stages: Sequence[Imports]) -> OpenWeight:
    """Return that of `rivals`, which are the same where passes saw them, that a constant of one of `stages` is at other
    sizes too.

    Raises:
        Declined: There is none, and only those would tell, or they tell that it is another one.
    """
    is_denied = False
    for imports in stages:
        for found in imports.told(rivals):
            if found is not None:
                return found
            is_denied = True
    if is_denied or rivals[0].grows:
        raise NoTableError("passes make a constant that depends on the sizes of another one")
    return rivals[0]


@dataclass(frozen=True)
class Imports:
    """A model at several sizes, as it was imported or later.

    Attributes:
        dims: Its dimensions, with the sizes that follow from those of the inputs.
        near: The sizes at which passes saw it.
        beside: Those of all others where imports told the bounds of one.
        lowest: Those as small as can be, where it is the same model; else `beside`.
        bounds: The sizes of each symbol of the inputs.
    """

    constants: Constants
    dims: OpenDims
    near: Sequence[Sizes]
    beside: Sizes
    lowest: Sizes
    bounds: Mapping[str, range]

    def told(self, rivals: Sequence[OpenWeight]) -> Iterator[OpenWeight | None]:
        """Yield, for each of `rivals`, which are the same where passes saw them, and each constant that they may be,
        the weight with all that other sizes tell of its table, or None where they tell that it is another one; nothing
        where they tell nothing."""
        for rival in rivals:
            for place in self._places(rivals[0]):
                values = list(self._values(rival, place))
                if values:
                    yield _grown(rival, values)

    def _places(self, weight: OpenWeight) -> list[int]:
        """Return which of the constants `weight` may be."""
        held = [self.constants(sizes) or () for sizes in self.near]
        wanted = [weight.at(sizes) for sizes in self.near]
        return [place for place, values in enumerate(zip(*held, strict=False)) if all(map(same_bits, values, wanted))]

    def _values(self, weight: OpenWeight, place: int) -> Iterator[tuple[dict[str, int], np.ndarray]]:
        """Yield other sizes, with those that follow from them, and the constant at `place` there, if the model has as
        many constants as near by."""
        count = len(self.constants(self.near[0]) or ())
        for choices in self._others(weight):
            held = ((sizes, self.constants(sizes)) for sizes in choices)
            sizes, constants = next(((at, each) for at, each in held if each and len(each) == count), ({}, None))
            if constants is not None:
                yield self.dims.all_sizes(sizes), constants[place]

    def _others(self, weight: OpenWeight) -> Iterator[list[Sizes]]:
        """Yield choices of sizes of the inputs, of which the first that the model has tells what `weight` is there: one
        symbol that it depends on is as large as can be, and the others are the same as in imports that told the bounds,
        or as small as can be; then one is small beside a large one, or alone; then all are small. What `weight` does
        not depend on is as small too, as it is where other weights are asked for: one import tells several."""
        beside = {name: self.beside[name] for name in self.bounds}
        symbols = self._symbols(weight)
        smallest = {symbol: self.bounds[symbol][0] for symbol in symbols}
        largest = {symbol: self.bounds[symbol][-1] for symbol in symbols}
        lowest = {**{name: self.lowest[name] for name in self.bounds}, **smallest}
        for symbol in symbols:
            large = {symbol: largest[symbol]}
            yield [{**beside, **large}, {**lowest, **large}]
        if len(symbols) > 1:
            for symbol, other in zip(symbols, (*symbols[1:], symbols[0]), strict=True):
                small, large = {symbol: smallest[symbol]}, {other: largest[other]}
                yield [{**lowest, **large}, {**beside, **large, **small}, {**beside, **small}]
            yield [lowest]

    def _symbols(self, weight: OpenWeight) -> list[str]:
        """Return which symbols of the inputs `weight` depends on."""
        found = self.dims.sources(weight.symbols)
        return [symbol for symbol in self.bounds if symbol in found]


def _grown(weight: OpenWeight, values: Iterable[tuple[Sizes, np.ndarray]]) -> OpenWeight | None:
    """Return `weight` with `values`, which are what a constant is at other sizes, in its table; None where it is
    another one at some."""
    for sizes, value in values:
        larger = grown(weight, value, sizes)
        if larger is None:
            return None
        weight = larger
    return weight
