"""What imports at bounds do not tell of sizes between them, where the model does not go on as it begins: what is left
of a division comes again, as `(length // 4) % 4` is 0 at 1, 2, 3 and 65536, and 1 at 5; two sizes may be one, or one
that the model asks for."""

from __future__ import annotations

import numpy as np

from fusion.declined import Declined
from fusion.errors import LimitError
from fusion.extents import Sizes
from fusion.symbolic.found_model import FoundModel
from fusion.symbolic.sized_imports import SizedImports

_LOOKED_AT = 8
"""Sizes within the bounds, a half of them small: what is left of a division by d is as near by, at all of them, by an
accident of 1 in d^8."""
_SMALL = 32
_EQUAL = 19
"""The size that all have at once, or the first above it that all take."""


def hold_between(importer: SizedImports, found: FoundModel) -> FoundModel:
    """Return the model as it is, after imports at sizes between its bounds where it asks of sizes what those at bounds
    do not tell.

    Raises:
        Declined: It is another one there.
    """
    asked = importer.asked
    tried = [*_equal(found), *_between(importer, found)] if asked.is_uneven else []
    for sizes in (*tried, *_asked_for(found, asked.numbers)):
        limits = len(importer.limits)
        try:
            goes_on = importer.goes_on(sizes, found)
        except LimitError:
            del importer.limits[limits:]
        else:
            if not goes_on:
                at = ", ".join(f"{symbol} {size}" for symbol, size in sizes.items())
                raise Declined(f"it is another one at some sizes between others at which it is the same: {at}")
    return found


def _equal(found: FoundModel) -> list[Sizes]:
    """Return one size for all symbols, if there are several and all take one."""
    taken = found.bounds.values()
    both = range(max((each.start for each in taken), default=0), min((each.stop for each in taken), default=0))
    sizes = [size for size in both if len(taken) > 1 and all(size in each for each in taken)]
    size = next((size for size in sizes if size >= _EQUAL), sizes[-1] if sizes else 0)
    return [dict.fromkeys(found.bounds, size)] if size else []


def _between(importer: SizedImports, found: FoundModel) -> list[Sizes]:
    """Return those of the first call, and sizes without a pattern."""
    first, bounds, sizes = importer.first or {}, found.bounds, list[Sizes]()
    if all(first.get(symbol) in taken for symbol, taken in bounds.items()):
        sizes.append({symbol: first[symbol] for symbol in bounds})
    rng = np.random.default_rng(0)
    for place in range(_LOOKED_AT):
        most = {symbol: len(taken) if place % 2 else min(len(taken), _SMALL) for symbol, taken in bounds.items()}
        sizes.append({symbol: taken[int(rng.integers(most[symbol]))] for symbol, taken in bounds.items()})
    return sizes


def _asked_for(found: FoundModel, numbers: set[int]) -> list[Sizes]:
    """Return sizes of which one is a number that the model asks for, and the others those at which passes see it."""
    near = {symbol: found.near[0][symbol] for symbol in found.bounds}
    return [{**near, symbol: size} for size in sorted(numbers) for symbol, taken in found.bounds.items()
            if size in taken]  # fmt: skip
