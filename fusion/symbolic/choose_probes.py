"""At which sizes passes see a model with derived sizes: such that no number they make is taken for another one; and at
which ones any model where two choices do not tell enough.

Of a number only what it is at two sizes is known. Where it grows by `a * d` for a symbol that grows by d, it would also
be a multiple of another symbol that grows by e if e divides that: so no growth divides a small multiple of another. Nor
does one become so many times larger as another, or a product of some as a product of others: widths of 320 and 480 with
batches of 2 and 3 made `20 * batch * height_by_32` of the number of pixels. What is a number up to a largest one, as
`min(boxes, 100)` is, is that number in one choice and the largest in the other: elsewhere it is as one of these.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from itertools import permutations, product
from math import gcd

import numpy as np

from fusion.declined import Declined
from fusion.extents import DerivedSize, Extent, Sizes, with_derived
from fusion.symbolic.open_dims import LARGEST, OpenDims

_SMALLEST, _TRIED_SIZES = 65, 640
"""From where on sizes are tried, and how many: of images that are not tiny, as stems halve them five times."""
_SMALLEST_BATCH, _LARGEST_BATCH = 5, 64
"""Those of batches that are divided: a half of 2 is as much as a half of 3."""
_DIVISION = 64
"""Where a size is divided by more than this on the way, they are so many times as large, as those of recordings."""
_FEWEST = 32
"""So many are tried at least of those that are steps apart."""
_COUNTED_BY = 4
"""What kernels count by has this factor: neither sizes nor the first that follow from them are multiples of it, or of
what all of them have in common and it."""
_COUNTED = 3
_GROWTH = 5
"""So much grows each size at least, and by a factor that is neither 2 nor 3 more than others."""
_TRIED = 60
"""Smaller sizes of a symbol, from which the best larger one is looked for."""
_STEPS = (2, 3, 4, 5, 6, 7)
"""Sizes further on are so many times as far from the second choice as that is from the first."""
_SPREAD = 64
"""Sizes without a pattern among which further ones are looked for where a table ends early."""
_TURNS = (1, 5, 0)
"""So many places further in these is the step of each symbol than that of the one before it: where all take the same,
each is the same line of another as before."""


def choose_probes(
    dims: OpenDims, small: Sequence[Sizes], fixed: Collection[int], smallest: int = _SMALLEST
) -> tuple[Sizes, Sizes]:
    """Return two choices of all sizes of `dims`, with those of `small` for symbols from which nothing follows, and for
    batches that are not divided.

    Args:
        fixed: Numbers that the model has at all sizes. A size is none of them: kernels that are equal become one.
        smallest: From where on sizes are tried, but for batches.

    Raises:
        Declined: There are none.
    """
    read = {name for size in dims.derived for part in size.parts for name in part.symbols}
    bounded = dims.sources(size.symbol for size in dims.derived if size.most)
    divided = {symbol for symbol in dims.leading if dims.division(symbol) > 1 or symbol in bounded}
    kept = [symbol for symbol in dims.symbols if symbol not in read or symbol in set(dims.leading) - divided]
    of_kept = _following(dims.derived, set(kept))
    first, second = (with_derived({symbol: sizes[symbol] for symbol in kept}, of_kept) for sizes in small)
    grown = list[int]()
    for symbol in dims.symbols:
        if symbol not in first:
            derived = [size for size in _following(dims.derived, {*first, symbol}) if size.symbol not in first]
            sizes = _tried_bounded(dims, symbol) if symbol in bounded else _tried(dims, symbol, smallest)
            first[symbol], second[symbol], more = _choose((symbol, sizes), derived, (first, second), (grown, fixed))
            grown += more
            first, second = with_derived(first, derived), with_derived(second, derived)
    return dims.all_sizes(first), dims.all_sizes(second)


def choose_further(dims: OpenDims, near: tuple[Sizes, Sizes], largest: Sizes) -> Sizes:
    """Return other sizes, larger than both of `near`, at which passes are to see the model where these do not tell
    enough: on no line through both, if it takes such, and as few multiples of what kernels count by as there are. They
    may be smaller where a table ends early.

    Raises:
        Declined: The model, which takes those up to `largest`, takes no larger ones.
    """
    first, second = near
    for turn in _TURNS:
        steps = list[Sizes]()
        for start in range(len(_STEPS)):
            of_symbol = {name: _STEPS[(start + turn * place) % len(_STEPS)] for place, name in enumerate(dims.symbols)}
            sizes = {name: second[name] + step * (second[name] - first[name]) for name, step in of_symbol.items()}
            if all(sizes[name] <= largest[name] for name in dims.symbols):
                steps.append(dims.all_sizes(sizes))
        if steps:
            return max(steps, key=lambda sizes: sum(size % _COUNTED_BY != 0 for size in sizes.values()))
    between = map(dims.spread, range(_SPREAD)) if dims.shown < LARGEST else ()
    for sizes in between:
        if _is_on_no_line(sizes, near) and all(sizes[name] <= largest[name] for name in dims.symbols):
            return dims.all_sizes(sizes)
    raise Declined("it takes too few sizes to tell how numbers in it follow from them")


def _is_on_no_line(sizes: Sizes, near: tuple[Sizes, Sizes]) -> bool:
    """Return whether no two of `sizes` are as far along between those of `near`, and none is one of these."""
    first, second = near
    along = [Fraction(size - first[name], second[name] - first[name]) for name, size in sizes.items()]
    return len({*along, Fraction(0), Fraction(1)}) == len(along) + 2


def _following(derived: Sequence[DerivedSize], known: set[str]) -> list[DerivedSize]:
    """Return those that follow from `known` symbols alone."""
    found = []
    for size in derived:
        if known.issuperset(name for part in size.parts for name in part.symbols):
            found.append(size)
            known.add(size.symbol)
    return found


def _tried(dims: OpenDims, symbol: str, smallest: int) -> np.ndarray:
    """Return those of the sizes that a symbol takes of which two are chosen."""
    scale = max(1, dims.division(symbol) // _DIVISION)
    largest = smallest + _TRIED_SIZES - 1
    if symbol in dims.leading:
        smallest, largest = _SMALLEST_BATCH, _LARGEST_BATCH
    large = dims.choices(symbol, range(smallest * scale, LARGEST * scale + 1))
    usual = dims.choices(symbol, range(smallest * scale, largest * scale + 1))
    return np.array(large[: max(len(usual), _FEWEST) : scale // 2 * 2 + 1])


def _tried_bounded(dims: OpenDims, symbol: str) -> np.ndarray:
    """Return the same of a symbol from which a number follows that goes on up to a largest one: more, and from half of
    that on if it is the symbol's own."""
    most = [size.most for size in dims.derived if size.most and size.parts == (Extent(0, 1, (symbol,)),)]
    smallest = max(_SMALLEST_BATCH, min(_SMALLEST, *most) // 2 if most else 0)
    return np.array(dims.choices(symbol, range(smallest, LARGEST + 1)))


def _choose(
    tried: tuple[str, np.ndarray],
    derived: Sequence[DerivedSize],
    known: tuple[Sizes, Sizes],
    others: tuple[list[int], Collection[int]],
) -> tuple[int, int, list[int]]:
    """Return two sizes of a symbol out of those `tried`, and what it and those that follow from it grow by; `others`
    are what those before it grow by, and fixed numbers."""
    (symbol, sizes), (grown, fixed) = tried, others
    names = [symbol, *(size.symbol for size in derived)]
    bounded = [(place, size.most) for place, size in enumerate(derived, 1) if size.most]
    first, second = (_table(names, {**each, symbol: sizes}, derived) for each in known)
    free = [place for place in range(len(names)) if place not in dict(bounded)]
    counted = [
        (_without_common(values[free][:_COUNTED]) % _COUNTED_BY).all(axis=0)
        & ~np.isin(values[free], [*fixed, *each.values()]).any(axis=0)
        for values, each in zip((first, second), known, strict=True)
    ]
    best = (-1, 0, 0)
    distinct = _distinct(first)
    ratios = {Fraction(known[1][name], known[0][name]) for name in known[0] if known[0][name]}
    for low in np.flatnonzero(counted[0])[:_TRIED]:
        growth = second - first[:, low : low + 1]
        able = counted[1] & (abs(growth) >= _GROWTH).all(axis=0) & (second[0] > first[0, low])
        able &= np.all([(first[at, low] < most) & (second[at] == most) for at, most in bounded], axis=0)
        for high in np.flatnonzero(able):
            pairs = zip(second[:, high], first[:, low], strict=True)
            if _coincide({Fraction(int(large), int(small)) for large, small in pairs if small}, ratios):
                continue
            apart = _apart([*grown, *map(int, growth[distinct, high])])
            best = max(best, (min(apart, _GROWTH), -int(low), -int(high)))
            if apart >= _GROWTH:
                break
        if best[0] >= _GROWTH:
            break
    if best[0] < 0:
        raise Declined(f"no two sizes of {symbol} tell what follows from it apart")
    smaller, larger = -best[1], -best[2]
    return int(sizes[smaller]), int(sizes[larger]), list(map(int, (second[:, larger] - first[:, smaller])[distinct]))


def _table(names: Sequence[str], sizes: Mapping[str, int | np.ndarray], derived: Sequence[DerivedSize]) -> np.ndarray:
    """Return what each of `names` is, a row each, at all sizes of the first of them."""
    values = with_derived(sizes, derived)  # type: ignore[arg-type]
    return np.array([np.broadcast_to(values[name], np.shape(sizes[names[0]])) for name in names])


def _without_common(rows: np.ndarray) -> np.ndarray:
    """Return the rows without the factor that all numbers of one have in common."""
    common: np.ndarray = np.gcd.reduce(rows, axis=1, keepdims=True)
    divided: np.ndarray = rows // np.maximum(common, 1)
    return divided


def _distinct(rows: np.ndarray) -> list[int]:
    """Return the places of rows that are no multiples of others, nor those moved: which of such a number is a multiple
    of, makes no difference."""
    risen = _without_common(rows - rows[:, :1])
    return [place for place in range(len(rows)) if not (risen[:place] == risen[place]).all(axis=1).any()]


def _apart(grown: Sequence[int]) -> int:
    """Return the least factor, but for 2 and 3, by which one of these grows more often than another."""
    pairs = permutations(grown, 2)
    return min((_without_2_and_3(abs(b) // gcd(a, b)) for a, b in pairs), default=_GROWTH)


def _coincide(ratios: Collection[Fraction], others: Collection[Fraction]) -> bool:
    """Return whether one of `ratios`, or its square, is a product of some of `others`, or one divided by another."""
    products = {a * b for a, b in product(others, repeat=2)} | set(others)
    quotients = products | {a / b for a, b in product(products, others)}
    return any(ratio in quotients or ratio**2 in products for ratio in ratios)


def _without_2_and_3(number: int) -> int:
    for factor in (2, 3):
        while number % factor == 0:
            number //= factor
    return number
