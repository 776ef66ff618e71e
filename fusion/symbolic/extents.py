"""Extents that depend on sizes only a call knows, and how one is found from what it is at some sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from math import prod

from fusion.declined import Declined

Sizes = Mapping[str, int]
"""The size of each symbol."""

_FACTORS = 3
"""So many symbols are multiplied at most: batch * heads of one size * length, or both lengths of a table of pairs."""


@dataclass(frozen=True)
class Extent:
    """`coefficient * product(symbols) + constant`; a plain number has no symbols."""

    constant: int
    coefficient: int = 0
    symbols: tuple[str, ...] = ()

    @property
    def is_static(self) -> bool:
        """Whether it is the same at all sizes."""
        return not self.symbols

    def at(self, sizes: Sizes) -> int:
        """Return the number that it is at these sizes."""
        return self.coefficient * prod(sizes[symbol] for symbol in self.symbols) + self.constant

    def __str__(self) -> str:
        factors = [*([str(self.coefficient)] if self.coefficient != 1 else []), *self.symbols]
        rest = f" {'-' if self.constant < 0 else '+'} {abs(self.constant)}" if self.constant else ""
        return " * ".join(factors) + rest if self.symbols else str(self.constant)


def fit(values: Sequence[int], probes: Sequence[Sizes]) -> Extent:
    """Return the extent that has each of `values` at the sizes of the same place in `probes`.

    Raises:
        Declined: It is no such extent.
    """
    if len(set(values)) == 1:
        return Extent(values[0])
    names = sorted(probes[0])
    for factors in range(1, _FACTORS + 1):
        for symbols in combinations_with_replacement(names, factors):
            found = _through([prod(sizes[name] for name in symbols) for sizes in probes], values)
            if found is not None:
                return Extent(found[1], found[0], symbols)
    at = "; ".join(f"{value} at {dict(sizes)}" for value, sizes in zip(values, probes, strict=True))
    raise Declined(f"a number is no multiple of the open sizes and their products: {at}")


def _through(xs: Sequence[int], ys: Sequence[int]) -> tuple[int, int] | None:
    """Return (a, b) of the line y = a x + b through all points, whole numbers; None where there is none."""
    rise = [(x - xs[0], y - ys[0]) for x, y in zip(xs, ys, strict=True)]
    steps = [(dx, dy) for dx, dy in rise if dx]
    if not steps or any(dy for dx, dy in rise if not dx):
        return None
    slope, rest = divmod(steps[0][1], steps[0][0])
    if rest or any(dy != slope * dx for dx, dy in steps):
        return None
    return slope, ys[0] - slope * xs[0]
