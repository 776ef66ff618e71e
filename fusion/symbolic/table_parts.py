"""Parts of tables, which are put together where they overlap."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np


@dataclass(frozen=True, eq=False)
class TablePart:
    """A part of a table.

    Attributes:
        firsts: The place of its first element on each axis.
    """

    values: np.ndarray
    firsts: tuple[int, ...]

    @property
    def ends(self) -> tuple[int, ...]:
        """The places behind its last element."""
        return tuple(first + extent for first, extent in zip(self.firsts, self.values.shape, strict=True))

    def overlap(self, other: TablePart) -> tuple[np.ndarray, np.ndarray]:
        """Return what both have, of each of them."""
        begins, ends = tuple(map(max, self.firsts, other.firsts)), tuple(map(min, self.ends, other.ends))
        of_self, of_other = (part.values[_slices(begins, ends, part.firsts)] for part in (self, other))
        return of_self, of_other

    def joined(self, other: TablePart) -> TablePart | None:
        """Return all that both have where that is one part, else this one alone; None where they differ."""
        mine, others = self.overlap(other)
        if not np.array_equal(mine, others):
            return None
        firsts, ends = tuple(map(min, self.firsts, other.firsts)), tuple(map(max, self.ends, other.ends))
        shape = [end - first for first, end in zip(firsts, ends, strict=True)]
        if not mine.size or prod(shape) > self.values.size + other.values.size - mine.size:
            return self
        values = np.empty(shape, self.values.dtype)
        for part in (self, other):
            values[_slices(part.firsts, part.ends, firsts)] = part.values
        return TablePart(values, firsts)


def _slices(begins: tuple[int, ...], ends: tuple[int, ...], firsts: tuple[int, ...]) -> tuple[slice, ...]:
    """Return the places from `begins` to `ends` in an array that begins at `firsts`."""
    places = zip(begins, ends, firsts, strict=True)
    return tuple(slice(begin - first, max(begin, end) - first) for begin, end, first in places)
