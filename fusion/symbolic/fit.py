"""Which extents numbers are, found from what they are at some sizes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations_with_replacement
from math import prod

import numpy as np

from fusion.declined import Declined
from fusion.extents import Extent, Sizes

_FACTORS = 3
"""So many symbols are multiplied at most: batch * heads of one size * length, or both lengths of a table of pairs."""
_EDGES = 16
"""Rows that windows add to an image, at most."""
_FLOAT32 = 1e-6
"""So exactly, relative to it, a float32 tells a ratio of two numbers."""


class NotLinearError(Declined):
    """A number is no multiple of a product of open sizes plus a constant."""


class NoTableError(Declined):
    """A constant is another one at other sizes, in no way that is known."""


@dataclass(eq=False)
class Fit:
    """Finds extents.

    Attributes:
        probes: The sizes at which numbers are known.
        known: Extents that the model is known to have: where several go through the same numbers, one of these does
            so by no accident.
        has_doubts: Whether several that passes may make of these go through some numbers, or none, or a product of
            moved ones, and none that is or moves one of them, or it is of other symbols than the function that has the
            numbers.
    """

    probes: Sequence[Sizes]
    known: Collection[Extent] = ()
    has_doubts: bool = field(default=False, init=False)
    _found: dict[tuple[int, ...], Extent] = field(default_factory=dict, init=False, repr=False)

    def extent(self, values: Sequence[int]) -> Extent:
        """Return the extent that has each of `values` at the sizes of the same place in `probes`.

        Raises:
            NotLinearError: It is no such extent.
        """
        key = tuple(values)
        if key not in self._found:
            self._found[key] = self._extent(key)
        return self._found[key]

    def extent_of(self, symbols: Collection[str], values: Sequence[int]) -> Extent:
        """Return the likeliest extent that has each of `values`, of these `symbols` alone if passes may make one.

        Any number is a line of batches of 2 and 3: what no pass makes is none, and what the model neither has nor moves
        is in doubt.

        Raises:
            NotLinearError: It is no such extent.
        """
        found = self.extent(values)
        if set(found.symbols).issubset(symbols):
            return found
        lines = [line for line in self._lines(tuple(values)) if set(line.symbols).issubset(symbols)]
        likeliest = min(filter(self._may_be_made, lines), key=self._doubt, default=found)
        self.has_doubts |= likeliest != found and (self._is_moved(found) or not self._is_moved(likeliest))
        return likeliest

    def product(self, values: Sequence[int]) -> tuple[Extent, ...]:
        """Return extents whose product is each of `values`: one that passes may make of those of the model; or two that
        it has but for 1, and a third or a number, as the pixels are by which a mean over `(height - 2) * (width - 2)`
        divides, which are in doubt.

        Raises:
            NotLinearError: There are none.
        """
        factors = self._factors(tuple(values))
        if factors is not None and not any(map(self._may_be_made, self._lines(tuple(values)))):
            self.has_doubts = True
            return factors
        return (self.extent(values),)

    def ratio(self, values: Sequence[float]) -> tuple[Extent, Extent]:
        """Return two extents, the first of which divided by the second is each of `values`, as far as float32 tells: 1,
        or such as the model has but for 1, as an image that is made larger between its corners is read in steps of
        `(rows - 1) / (8 * rows - 1)`.

        Raises:
            NotLinearError: There are none.
        """
        near = self._near_extents
        for parts, below in near.items():
            above = [value * part for value, part in zip(values, parts, strict=True)]
            whole = tuple(map(round, above))
            if whole in near and np.allclose(above, whole, rtol=_FLOAT32, atol=0):
                return near[whole], below
        raise NotLinearError(f"a number is no ratio of open sizes: {', '.join(map(str, values))}")

    def _extent(self, values: tuple[int, ...]) -> Extent:
        if len(set(values)) == 1:
            return Extent(values[0])
        lines = list(self._lines(values))
        if lines:
            likeliest = min(lines, key=self._doubt)
            made = [line for line in lines if self._may_be_made(line)]
            is_only = made == [likeliest] and self._is_multiple(likeliest) and self._factors(values) is None
            self.has_doubts |= not (is_only or self._is_moved(likeliest))
            return likeliest
        at = "; ".join(f"{value} at {dict(sizes)}" for value, sizes in zip(values, self.probes, strict=True))
        raise NotLinearError(f"a number is no multiple of the open sizes and their products: {at}")

    def _factors(self, values: tuple[int, ...]) -> tuple[Extent, Extent, Extent] | None:
        """Return three extents whose product is each of `values`: two that the model has but for 1, and a third or a
        number; None if there are none but those of a line."""
        (pairs, at), near = self._near_products, self._near_extents
        numbers = np.array(values)
        rest = numbers // at
        for place in np.flatnonzero((rest * at == numbers).all(axis=1)):
            left = tuple(map(int, rest[place]))
            third = Extent(left[0]) if len(set(left)) == 1 else near.get(left)
            if third is not None:
                factors = (*pairs[place], third)
                of_sizes = [each for each in factors if each.symbols]
                if len(of_sizes) > 1 and any(each.constant for each in of_sizes):
                    return factors
        return None

    def _lines(self, values: tuple[int, ...]) -> Iterator[Extent]:
        """Yield the extents that go through all `values`; there are several where these are few."""
        products, at = self._products
        rise, known_rise = np.array(values) - values[0], at - at[:, :1]
        place = int(np.flatnonzero(rise)[0])
        step = known_rise[:, place]
        slopes = rise[place] // np.where(step == 0, 1, step)
        fits = (step != 0) & (slopes[:, None] * known_rise == rise).all(axis=1)
        for number in np.flatnonzero(fits):
            slope = int(slopes[number])
            yield Extent(values[0] - slope * int(at[number, 0]), slope, products[number])

    def _doubt(self, line: Extent) -> tuple[int, int]:
        """Return what is smaller of an extent that is likelier: one that the model has, then one that it has but for a
        small constant, as the last index of an image or one with its edges, then one without a constant.

        Without the second, a height of 9 and 19 had the last row 2 * batch * batch, of batches of 2 and 3.
        """
        is_new = len(line.symbols) > 1 and line.symbols not in self._known_products
        is_whole = line.constant == 0
        signs = (line in self.known, self._is_moved(line), is_whole and not is_new, is_whole, not is_new, True)
        return signs.index(True), abs(line.constant)

    def _is_moved(self, line: Extent) -> bool:
        """Whether `line` is an extent that the model has but for a small constant."""
        is_near = line in self.known or abs(line.constant) <= _EDGES
        return is_near and (line.coefficient, line.symbols) in self._known_lines

    def _may_be_made(self, line: Extent) -> bool:
        """Whether passes may make `line` of what the model has: an extent of it or a product of symbols, with edges at
        most, so many times; or a few more than a multiple, which nothing but a third size tells from an accident.

        Twice the batch was also `width - 37` at two sizes of a model that halves its width: no pass cuts 37 off.
        """
        return abs(line.constant) <= _EDGES or self._is_multiple(line)

    def _is_multiple(self, line: Extent) -> bool:
        """Whether `line` is so many times an extent of the model or a product of symbols, with edges at most."""
        bases = [Extent(0, 1, line.symbols), *(extent for extent in self.known if extent.symbols == line.symbols)]
        for base in bases:
            times, rest = divmod(line.coefficient, base.coefficient)
            edges, part = divmod(line.constant - times * base.constant, times) if times else (0, 1)
            if not rest and not part and abs(edges) <= _EDGES:
                return True
        return False

    @cached_property
    def _near_extents(self) -> dict[tuple[int, ...], Extent]:
        """The extents that the model has but for 1, by what they are at the probes, always in the same order."""
        known = [*(Extent(0, 1, (name,)) for name in self.probes[0]), *sorted(self.known, key=str)]
        moved = (replace(extent, constant=extent.constant + by) for extent in known for by in (0, -1, 1))
        return {tuple(extent.at(sizes) for sizes in self.probes): extent for extent in (Extent(1), *moved)}

    @cached_property
    def _near_products(self) -> tuple[list[tuple[Extent, Extent]], np.ndarray]:
        """The pairs of these extents, and the product of each at each of the probes, where none is 0."""
        near = {values: extent for values, extent in self._near_extents.items() if all(values)}
        pairs = list(combinations_with_replacement(near.values(), 2))
        products = [[a * b for a, b in zip(*each, strict=True)] for each in combinations_with_replacement(near, 2)]
        return pairs, np.array(products, np.int64).reshape(len(pairs), len(self.probes))

    @cached_property
    def _known_products(self) -> frozenset[tuple[str, ...]]:
        return frozenset(extent.symbols for extent in self.known)

    @cached_property
    def _known_lines(self) -> frozenset[tuple[int, tuple[str, ...]]]:
        itself = ((1, (name,)) for name in self.probes[0])
        return frozenset((*itself, *((extent.coefficient, extent.symbols) for extent in self.known)))

    @cached_property
    def _products(self) -> tuple[list[tuple[str, ...]], np.ndarray]:
        """The products of symbols that extents may be multiples of, and each at each of the probes."""
        names = sorted(self.probes[0])
        found = [each for count in range(_FACTORS) for each in combinations_with_replacement(names, count + 1)]
        known = sorted({extent.symbols for extent in self.known if len(extent.symbols) > 1})
        pairs = (tuple(sorted(first + second)) for first, second in combinations_with_replacement(known, 2))
        products = list(dict.fromkeys((*found, *known, *pairs)))
        at = [[prod(sizes[name] for name in product) for sizes in self.probes] for product in products]
        return products, np.array(at, np.int64).reshape(len(products), len(self.probes))
