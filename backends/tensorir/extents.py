"""Extents of loops and buffers: numbers, or expressions of symbols that only a call knows."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

from tvm import tirx
from tvm.ir import Var
from tvm.sym import Analyzer

from fusion.structural import find, map_nodes

Extent = Any
"""An int, or a TensorIR expression of the symbols of a kernel, which are 0 or more."""

_TYPICAL = 64
"""What a symbol counts as where work is weighed."""


def extent_of(dim: tirx.PrimExpr) -> Extent:
    """Return a dimension, as an int where it is a number."""
    return int(dim.value) if isinstance(dim, tirx.IntImm) else dim


def is_same(a: Extent, b: Extent) -> bool:
    """Return whether two extents are equal at all sizes."""
    if isinstance(a, int) or isinstance(b, int):
        return a is b or (isinstance(a, int) and isinstance(b, int) and a == b)
    return bool(Analyzer().can_prove_equal(a, b))


def is_within(begin: Extent, extent: Extent, whole: Extent) -> bool:
    """Return whether [begin, begin + extent) is inside of [0, whole) at all sizes, as far as that is seen."""
    return is_at_most(0, begin) and is_at_most(begin + extent, whole)


def is_at_most(a: Extent, b: Extent) -> bool:
    """Return whether a <= b at all sizes: where each symbol is 0 or of a typical size, between which both are straight
    but for squares."""
    room = b - a
    symbols = list(dict.fromkeys(_symbols(room)))
    corners = product((0, _TYPICAL), repeat=len(symbols))
    return all(_at(room, dict(zip(symbols, sizes, strict=True))) >= 0 for sizes in corners)


def difference(a: Extent, b: Extent) -> Extent:
    """Return a - b."""
    return a - b if isinstance(a, int) and isinstance(b, int) else extent_of(Analyzer().simplify(a - b))


def least(a: Extent, b: Extent) -> Extent:
    """Return the smaller of two extents."""
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else tirx.min(a, b)


def most(a: Extent, b: Extent) -> Extent:
    """Return the larger of two extents."""
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else tirx.max(a, b)


def typical(extent: Extent) -> int:
    """Return an extent as a number, at typical sizes of its symbols."""
    return _at(extent, {})


def sizes_of(extent: Extent, *others: Extent) -> list[int]:
    """Return an extent as numbers: where each of the symbols of `extent` and `others` in turn is 1, and all the others
    are typical."""
    symbols = sorted({var for each in (extent, *others) for var in _symbols(each)}, key=lambda var: str(var.name))
    return [_at(extent, {symbol: 1}) for symbol in symbols]


def _symbols(extent: Extent) -> list[Var]:
    return [] if isinstance(extent, int) else find(extent, Var)


def _at(extent: Extent, sizes: Mapping[Var, int]) -> int:
    """Return an extent as a number, where symbols are of such sizes and all others typical."""
    if isinstance(extent, int):
        return extent
    numbers = (Var, lambda var: tirx.const(sizes.get(var, _TYPICAL), var.ty.dtype))
    return int(Analyzer().simplify(map_nodes(extent, numbers)).value)
