"""Which extents numbers are, found from what they are at some sizes, and those of expressions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement
from math import prod

from fusion.declined import Declined
from fusion.extents import Extent, Sizes

_FACTORS = 3
"""So many symbols are multiplied at most: batch * heads of one size * length, or both lengths of a table of pairs."""


def fit(values: Sequence[int], probes: Sequence[Sizes]) -> Extent:
    """Return the extent that has each of `values` at the sizes of the same place in `probes`.

    Raises:
        Declined: It is no such extent.
    """
    if len(set(values)) == 1:
        return Extent(values[0])
    names = sorted(probes[0])
    lines = []
    for factors in range(1, _FACTORS + 1):
        for symbols in combinations_with_replacement(names, factors):
            found = _through([prod(sizes[name] for name in symbols) for sizes in probes], values)
            if found is not None:
                lines.append(Extent(found[1], found[0], symbols))
    if lines:
        # Through the sizes of two probes there is a line for many products; the one closest to 0 is no accident.
        return min(lines, key=lambda line: abs(line.constant))
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
