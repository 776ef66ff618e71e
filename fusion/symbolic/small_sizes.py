"""The smallest sizes at which it is asked whether a model is the same."""

from __future__ import annotations

from collections.abc import Iterator

from fusion.extents import Sizes
from fusion.symbolic.open_dims import OpenDims

_SMALL = (8, 32)
"""Smallest sizes that are tried of images that are too small for a window at 1."""


def small_sizes(symbol: str, dims: OpenDims) -> list[int]:
    """Return the smallest size that `symbol` takes, and a few behind it: images may be too small for a window there."""
    division = dims.division(symbol)
    small = (*_SMALL, *([division] if division > _SMALL[-1] else [])) if dims.derived else ()
    return [dims.taken(symbol)[0], *(dims.at_least(symbol, size) for size in (2, *small))]


def low_corners(dims: OpenDims) -> Iterator[Sizes]:
    """Yield all sizes as small as can be; then, where sizes follow from one alone that is the first dimension of no
    input, the same with small sizes of that, as it is another model at the first mostly. Such a corner is one of those
    at which the bounds are looked at together."""
    smallest = {symbol: dims.taken(symbol)[0] for symbol in dims.symbols}
    yield dims.all_sizes(smallest)
    inner = [symbol for symbol in dims.symbols if symbol not in dims.leading]
    if dims.derived and len(inner) == 1:
        for size in small_sizes(inner[0], dims)[1:]:
            yield dims.all_sizes({**smallest, inner[0]: size})
