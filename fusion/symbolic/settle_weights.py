"""Which of the constants that depend on sizes one is, and the table that it is a part of: imports at other sizes tell
both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fusion.declined import Declined
from fusion.extents import Sizes
from fusion.symbolic.join_weights import grown
from fusion.symbolic.open_dims import OpenDims
from fusion.symbolic.open_weights import OpenWeight

Constants = Callable[[Sizes], "Sequence[np.ndarray] | None"]
"""Those of a model at sizes of the inputs, in order; None where it is another one there."""


def settle(rivals: Sequence[OpenWeight], stages: Sequence[Imports]) -> OpenWeight:
    """Return that of `rivals`, which are the same where passes saw them, that a constant of one of `stages` is at other
    sizes too.

    Raises:
        Declined: There is none, and only those would tell.
    """
    for imports in stages:
        found = imports.settled(rivals)
        if found is not None:
            return found
    if rivals[0].grows:
        raise Declined("passes make a constant that depends on the sizes of another one")
    return rivals[0]


@dataclass(frozen=True)
class Imports:
    """A model at several sizes, as it was imported or later.

    Attributes:
        dims: Its dimensions, with the sizes that follow from those of the inputs.
        near: The sizes at which passes saw it.
        bounds: The sizes of each symbol of the inputs.
    """

    constants: Constants
    dims: OpenDims
    near: Sequence[Sizes]
    bounds: Mapping[str, range]

    def settled(self, rivals: Sequence[OpenWeight]) -> OpenWeight | None:
        """Return that of `rivals`, which are the same where passes saw them, that a constant is at other sizes too;
        None where none is."""
        grown_rivals = (self._grown(rival, place) for rival in rivals for place in self._places(rivals[0]))
        return next(filter(None, grown_rivals), None)

    def _places(self, weight: OpenWeight) -> list[int]:
        """Return which of the constants `weight` may be."""
        held = [self.constants(sizes) or () for sizes in self.near]
        wanted = [weight.at(sizes) for sizes in self.near]
        return [place for place, values in enumerate(zip(*held, strict=False)) if all(map(_equal, values, wanted))]

    def _grown(self, weight: OpenWeight, place: int) -> OpenWeight | None:
        """Return `weight` with all that is known of its table if it is the constant at `place`; None if it is not, or
        nothing is known."""
        found: OpenWeight | None = weight
        count, known = len(self.constants(self.near[0]) or ()), 0
        for sizes, all_sizes in self._others(weight):
            constants = self.constants(sizes)
            if found is not None and constants is not None and len(constants) == count:
                found, known = grown(found, constants[place], all_sizes), known + 1
        return found if known else None

    def _others(self, weight: OpenWeight) -> Iterator[tuple[Sizes, Sizes]]:
        """Yield sizes of the inputs at which one symbol that `weight` depends on is as large as can be, and all sizes
        there: the others are as small as can be, or the same as near by."""
        near = self.near[0]
        symbols = self._symbols(weight)
        smallest = {symbol: self.bounds[symbol][0] for symbol in symbols}
        for symbol in symbols:
            largest = {symbol: self.bounds[symbol][-1]}
            for others in (smallest, {}) if len(symbols) > 1 else ({},):
                sizes = {**{name: near[name] for name in self.bounds}, **others, **largest}
                yield sizes, self.dims.all_sizes(sizes)

    def _symbols(self, weight: OpenWeight) -> list[str]:
        """Return which symbols of the inputs `weight` depends on."""
        found = set(weight.symbols)
        for size in reversed(self.dims.derived):
            if size.symbol in found:
                found |= {symbol for part in size.parts for symbol in part.symbols}
        return [symbol for symbol in self.bounds if symbol in found]


def _equal(first: np.ndarray, second: np.ndarray) -> bool:
    return first.shape == second.shape and first.dtype == second.dtype and np.array_equal(first, second)
