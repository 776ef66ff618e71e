"""Sizes of inputs that follow from those of others: the mask of a decoder is as long as its cache and the tokens behind
it together.

Names may say so, as "past + length" does. Where a model takes no sizes that have nothing to do with each other, what
holds of those of the first call may hold of all: it does if the model can be imported at others of which it holds.
Every call is asked whether it holds of its own sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations, islice

from fusion.extents import DerivedSize, Extent, Sizes
from fusion.symbolic.open_dims import PLUS, OpenDims

_MOST_TRIED = 24
"""Imports, most of which end early."""
_MOST_MORE = 8
"""So much larger is one that follows from another alone: a mask that has a place for each of a cache and one token."""


def said_relations(dims: OpenDims, first: Sizes | None) -> OpenDims | None:
    """Return `dims` with the sizes whose names say what they are the sum of, if that holds of the `first` call where
    one is known; None where there are none."""
    relations = {
        each.symbol: each
        for each in _relations(dims.symbols)
        if _is_said(each) and (first is None or each.at(first) == first[each.symbol])
    }
    derived = sorted(relations.values(), key=lambda each: len(each.symbol))  # a name is longer than those in it
    return replace(dims, derived=tuple(derived)) if relations else None


def find_relations(is_taken: Callable[[OpenDims], bool], dims: OpenDims, first: Sizes) -> OpenDims | None:
    """Return `dims` with sizes that follow from others, as they do in the `first` call and wherever else the model
    takes any; None where it takes such as have nothing to do with each other, or there are none.

    Args:
        is_taken: Says whether the model takes sizes as such dimensions have them.
        dims: Those of its sizes that follow from others go on to do so.
    """
    if is_taken(dims):
        return None
    likely = [each for each in _relations(dims.symbols) if each.at(first) == first[each.symbol]]
    tried = (replace(dims, derived=(*relations, *dims.following)) for relations in _choices(likely))
    return next(filter(is_taken, islice(tried, _MOST_TRIED)), None)


def find_sum(is_taken: Callable[[OpenDims], bool], dims: OpenDims, first: Sizes) -> OpenDims | None:
    """Return `dims` with a size that is the sum of two others, as it is in the `first` call and may be elsewhere; None
    where there is none."""
    likely = (each for each in _relations(dims.symbols) if len(each.parts) > 1 and each.at(first) == first[each.symbol])
    tried = (replace(dims, derived=(each, *dims.following)) for each in islice(likely, _MOST_TRIED))
    return next(filter(is_taken, tried), None)


def _choices(relations: Sequence[DerivedSize]) -> Iterator[tuple[DerivedSize, ...]]:
    """Yield each of `relations` alone, then any two that have nothing to do with each other; last sizes that are a few
    more than another."""
    likely = [each for each in relations if not each.parts[0].constant]
    yield from ((each,) for each in likely)
    for one, other in combinations(likely, 2):
        if one.symbol != other.symbol and not {one.symbol, other.symbol} & {*_read(one), *_read(other)}:
            yield one, other
    yield from ((each,) for each in relations if each.parts[0].constant)


def _relations(symbols: Sequence[str]) -> Iterator[DerivedSize]:
    """Yield what sizes may be: the sum of two others, as large as another one, or a few more."""
    for symbol in symbols:
        for one, other in combinations([each for each in symbols if each != symbol], 2):
            yield DerivedSize(symbol, (Extent(0, 1, (one,)), Extent(0, 1, (other,))))
    for more in range(_MOST_MORE + 1):
        for symbol in symbols:
            yield from (DerivedSize(symbol, (Extent(more, 1, (one,)),)) for one in symbols if one != symbol)


def _is_said(relation: DerivedSize) -> bool:
    """Return whether the name of a size is that of a sum with plus signs, as symbols have it; `x_1_1`, the second size
    of an input `x_1` that nobody named, is none."""
    parts = _read(relation) + [str(part.constant) for part in relation.parts if part.constant]
    return len(parts) > 1 and relation.symbol in {PLUS.join(order) for order in (parts, parts[::-1])}


def _read(relation: DerivedSize) -> list[str]:
    return [name for part in relation.parts for name in part.symbols]
