"""Sizes that follow from open ones by more than a multiple: of a width w, an operator with a stride of 2 makes
(w + 1) // 2, and a concatenation the sum of two.

They are found from the numbers of a model that was imported at many sizes, in the order of its operators: what is no
extent of the symbols so far is a quotient of one of them, one of the numbers so far up to a largest one, as detectors
keep `min(boxes, 100)`, or else a sum of several, and a symbol from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations
from math import gcd, prod

import numpy as np

from fusion.extents import DerivedSize, Extent, Sizes, with_derived
from fusion.symbolic.fit import Fit, NotLinearError
from fusion.symbolic.open_dims import OpenDims
from fusion.symbolic.outline import OpenOutline, OperatorLine, check_alike

Column = tuple[int, ...]
_DIVISORS = range(2, 1025)
"""Of quotients: strides, the sides of patches, and steps between the frames of a recording."""
_SMALL_DIVISOR = 64
"""Larger ones are told apart at sizes that are so many times as large."""
_PLACES, _MOST_RIVALS = 512, 128
"""So many of these are scanned, and so many quotients compared there."""
_TERMS = (2, 3)
"""So many are added up: two rows, or those of images of three sizes, as heads of detectors put them together."""
_SCANNED = range(65, 577)
"""Sizes at which quotients are told apart."""


@dataclass(frozen=True)
class Deduction:
    """What numbers at some sizes tell.

    Attributes:
        derived: The sizes that follow from others.
        rivals: Of each quotient among them all that have the same numbers, itself included.
    """

    derived: tuple[DerivedSize, ...]
    graph: OpenOutline
    rivals: tuple[tuple[DerivedSize, ...], ...]


def deduce(
    outlines: Sequence[tuple[OperatorLine, ...]], sizes: Sequence[Sizes], following: Sequence[DerivedSize] = ()
) -> Deduction:
    """Return what a model that has these operators at these sizes is for all of them, some of which are known to be
    `following` from others.

    Raises:
        Declined: It differs in more than sizes.
        NotLinearError: A number in it is neither an extent nor a quotient or a sum of those.
    """
    check_alike(outlines)
    found = _Deducer([with_derived(each, following) for each in sizes], list(following))
    found.explain(dict.fromkeys(column for lines in zip(*outlines, strict=False) for column in _columns(lines)))
    return Deduction(tuple(found.derived), OpenOutline.of(outlines, found.fit), tuple(found.rivals))


def _columns(lines: Sequence[OperatorLine]) -> list[Column]:
    return list(zip(*(line.numbers for line in lines), strict=False))


@dataclass
class _Deducer:
    """Adds symbols for numbers.

    Attributes:
        sizes: Those of all symbols so far, for each of the places of a column.
    """

    sizes: list[dict[str, int]]
    derived: list[DerivedSize] = field(default_factory=list)
    rivals: list[tuple[DerivedSize, ...]] = field(default_factory=list)
    _terms: dict[tuple[str, ...], None] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.fit = Fit(self.sizes)
        self._terms = {(name,): None for name in self.sizes[0]}

    def explain(self, columns: dict[Column, None]) -> None:
        """Add symbols for what of `columns` is no extent; one that is read before others are found is asked again."""
        known = list[Column]()

        def is_told(column: Column, *further: Callable[[Column], bool]) -> bool:
            ways = (self._is_extent, self._is_quotient, lambda each: self._is_least(each, known), *further)
            found = any(is_it(column) for is_it in ways)
            known.extend([column] * found)
            return found

        for column in [column for column in columns if not is_told(column)]:
            if not is_told(column, self._is_sum):
                self.fit.extent(column)  # raises

    def _is_extent(self, column: Column) -> bool:
        try:
            extent = self.fit.extent(column)
        except NotLinearError:
            return False
        if extent.symbols:
            self._terms[extent.symbols] = None
        return True

    def _is_quotient(self, column: Column) -> bool:
        """Add the quotient that `column` is, or a multiple of, if it is one."""
        step = gcd(*(value - column[0] for value in column))
        for scale in dict.fromkeys((1, step)):
            counted = tuple(value // scale for value in column)
            found = list[DerivedSize]()
            for divisor in self._divisors(counted):
                if not found or found[0].divisor > _SMALL_DIVISOR:
                    found += self._quotients(counted, divisor)
            if found:
                self.rivals.append(tuple(found))
                self._add(found[0])
                return True
        return False

    def _divisors(self, column: Column) -> list[int]:
        """Return by what a symbol may be divided so that the quotient grows as `column` does between its ends: by less
        than one more or less, as what a division leaves is."""
        found = set[int]()
        for name in self.sizes[0]:
            least, *_, most = sorted((sizes[name], value) for value, sizes in zip(column, self.sizes, strict=True))
            grown, steps = most[0] - least[0], most[1] - least[1]
            if steps >= 0:
                last = (grown - 1) // (steps - 1) if steps > 1 else _DIVISORS[-1]
                found.update(range(max(_DIVISORS[0], grown // (steps + 1)), min(_DIVISORS[-1], last) + 1))
        return sorted(found)

    def _quotients(self, column: Column, divisor: int) -> list[DerivedSize]:
        """Return the quotients of a symbol by `divisor` that are `column`, those of the symbols found last first."""
        found = []
        for name in reversed(self.sizes[0]):
            rests = [divisor * value - sizes[name] for value, sizes in zip(column, self.sizes, strict=True)]
            symbol = self._name(f"{name}_by_{divisor}")
            for offset in range(max(rests), min(rests) + divisor):
                found.append(DerivedSize(symbol, (Extent(offset, 1, (name,)),), divisor))
        return found

    def _is_least(self, column: Column, known: Sequence[Column]) -> bool:
        """Add the number that `column` is if it is one of those `known` up to a largest one, beyond which that goes on
        at two places and more."""
        most = max(column)
        for other in known:
            beyond = {value for value in other if value > most}
            if len(beyond) > 1 and most > 0 and tuple(min(value, most) for value in other) == column:
                extent = self.fit.extent(other)
                self._add(DerivedSize(self._name(f"least_{'_'.join(extent.symbols)}"), (extent,), most=most))
                return True
        return False

    def _is_sum(self, column: Column) -> bool:
        """Add the sum of multiples of products that `column` is, if it is one."""
        known = (terms for count in _TERMS for terms in combinations(self._terms, count))
        for terms in chain(known, self._products_of_sums()):
            values = [[prod(sizes[name] for name in term) for sizes in self.sizes] for term in terms]
            factors = _solved(values, column)
            if factors is not None:
                *multiples, rest = factors
                parts = [Extent(0, factor, term) for factor, term in zip(multiples, terms, strict=True)]
                parts[-1] = Extent(rest, multiples[-1], terms[-1])
                self._add(DerivedSize(self._name("_and_".join("_".join(term) for term in terms)), tuple(parts)))
                return True
        return False

    def _products_of_sums(self) -> Iterator[tuple[tuple[str, ...], ...]]:
        """Yield the terms of products of two symbols to which numbers are added: as many rows as a batch has behind a
        token of each are batch * words + batch, and the model may have no batch * words."""
        for one, other in combinations(sorted(self.sizes[0]), 2):
            yield (one, other), (one,)
            yield (one, other), (other,)
            yield (one, other), (one,), (other,)

    def _name(self, name: str) -> str:
        """Return `name`, or one like it where there is such a symbol."""
        taken = self.sizes[0]
        return next(each for each in (name, *(f"{name}_{n}" for n in range(len(taken) + 1))) if each not in taken)

    def _add(self, size: DerivedSize) -> None:
        self.derived.append(size)
        self._terms[size.symbol,] = None
        for sizes in self.sizes:
            sizes[size.symbol] = size.at(sizes)
        self.fit = Fit(self.sizes)


def _solved(terms: Sequence[Sequence[int]], column: Column) -> list[int] | None:
    """Return the whole numbers by which `terms` are multiplied and what is added, so that they add up to `column`; None
    where there are none, or so few values that any have some."""
    if len(column) < len(terms) + 3:
        return None
    known = np.array([*terms, [1] * len(column)], np.int64)
    guessed, *_ = np.linalg.lstsq(known.T.astype(np.float64), np.array(column, np.float64), rcond=None)
    factors = np.rint(guessed).astype(np.int64)
    right = (factors @ known == np.array(column)).all() and factors[:-1].all()
    return [int(factor) for factor in factors] if right else None


def telling(deduction: Deduction, dims: OpenDims, sizes: Sizes) -> dict[str, int] | None:
    """Return sizes that `dims` take at which most of the rivals of a deduction differ, for those that can be told
    apart: others are as in `sizes`; None where none can."""
    found = dict(sizes)
    largest = max((size.divisor for size in deduction.derived), default=1)
    for symbol in sizes:
        scanned = np.array(dims.choices(symbol, _SCANNED))
        if largest > _SMALL_DIVISOR:
            beyond = dims.choices(symbol, range(largest, _SMALL_DIVISOR * largest))
            scanned = np.array(beyond[:: -(len(beyond) // _PLACES | 1)])
        known = with_derived({**sizes, symbol: scanned}, deduction.derived)  # type: ignore[dict-item]
        scores = sum((_told_apart(rivals, known, len(scanned)) for rivals in deduction.rivals), np.zeros(len(scanned)))
        if scores.any():
            found[symbol] = int(scanned[scores.argmax()])
    return None if found == dict(sizes) else found


def _told_apart(rivals: Sequence[DerivedSize], sizes: Sizes, count: int) -> np.ndarray:
    """Return at each of `count` scanned sizes how many of `rivals` cannot be if it is as most of them say."""
    some = rivals[:: len(rivals) // _MOST_RIVALS + 1]
    values = np.array([np.broadcast_to(rival.at(sizes), count) for rival in some])
    most = np.zeros(count, np.int64)
    for row in values:
        most = np.maximum(most, (values == row).sum(axis=0))
    return len(some) - most
