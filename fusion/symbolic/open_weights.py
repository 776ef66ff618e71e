"""Constants that passes made of the sizes of a call: positions, masks for each image, the used part of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fusion.extents import Extent, Sizes

_ONE = Extent(1)


def repeats(known: int, extent: Extent) -> bool:
    """Return whether the `known` rows of a table come again and again along an axis of this extent: one row, or as many
    as it is a multiple of."""
    return known == 1 or (extent.constant == 0 and known == extent.coefficient)


@dataclass(frozen=True)
class Count:
    """Numbers each of which is one step further than its neighbour along each axis: positions, or places in a table
    whose rows lie behind one another.

    Attributes:
        steps: Along each axis.
        shape: That they are counted in.
        divisor: What all are divided by: `n / (n - 1)` corrects the variance of n values.
    """

    first: Extent
    steps: tuple[Extent, ...]
    shape: tuple[Extent, ...]
    divisor: Extent = _ONE

    @property
    def extents(self) -> tuple[Extent, ...]:
        """All that depends on sizes in it."""
        return (*self.numbers, *self.shape)

    @property
    def numbers(self) -> tuple[Extent, ...]:
        """What the numbers follow from but for their place."""
        return (self.first, *self.steps, self.divisor)

    @property
    def parts(self) -> tuple[Count, ...]:
        """What it consists of."""
        return (self,)

    def is_at(self, sizes: Sizes) -> bool:
        """Return whether there are no fewer than none at these sizes, as there are between the ends of no row."""
        return all(extent.at(sizes) >= 0 for extent in self.shape)

    def at(self, sizes: Sizes, dtype: np.dtype) -> np.ndarray:
        """Return the numbers."""
        counts = [extent.at(sizes) for extent in self.shape]
        numbers = np.full(counts, self.first.at(sizes), np.int64)
        for step, places in zip(self.steps, np.ix_(*map(np.arange, counts)), strict=True):
            numbers += step.at(sizes) * places
        if self.divisor == _ONE:
            return numbers.astype(dtype)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios: np.ndarray = numbers / np.float64(self.divisor.at(sizes))
        return ratios.astype(dtype).reshape(counts)


@dataclass(frozen=True)
class CountedRuns:
    """Rows of such numbers behind one another, as a picture is read that goes on beyond its edges as in a mirror: 2, 1,
    0, then 1, 2, ..., then back again."""

    parts: tuple[Count, ...]

    @property
    def extents(self) -> tuple[Extent, ...]:
        """All that depends on sizes in it."""
        return tuple(extent for part in self.parts for extent in part.extents)

    def is_at(self, sizes: Sizes) -> bool:
        """Return whether no row has fewer than none at these sizes."""
        return all(part.is_at(sizes) for part in self.parts)

    def at(self, sizes: Sizes, dtype: np.dtype) -> np.ndarray:
        """Return the numbers."""
        return np.concatenate([part.at(sizes, dtype) for part in self.parts])


Counted = Count | CountedRuns


@dataclass(frozen=True)
class TableWindow:
    """Where in a table a constant is.

    Attributes:
        starts: The place of its first element on each axis, counted from one that all sizes have in common.
        firsts: The place of the table's first element, counted from there too: less than 0 where that is before.
        diagonal: Two axes, rows and columns, where an element depends on how far its column is from its row: the table
            has these numbers along the columns. None where there are none.
    """

    starts: tuple[Extent, ...]
    firsts: tuple[int, ...]
    diagonal: tuple[int, ...] | None = None

    @property
    def extents(self) -> tuple[Extent, ...]:
        """All that depends on sizes in it."""
        return self.starts

    def places(self, sizes: Sizes, shape: Sequence[int]) -> list[tuple[int, int]]:
        """Return the first place and that behind the last, in the table, of what a constant of `shape` takes."""
        counts = list(shape)
        if self.diagonal is not None:
            rows, columns = self.diagonal
            counts[rows], counts[columns] = 1, shape[rows] + shape[columns] - 1
        begins = [start.at(sizes) - first for start, first in zip(self.starts, self.firsts, strict=True)]
        return [(begin, begin + count) for begin, count in zip(begins, counts, strict=True)]


    def is_in(self, table: Sequence[int], extents: Sequence[Extent], sizes: Sizes) -> bool:
        """Return whether a table of this shape has all of a constant of these extents."""
        shape = [extent.at(sizes) for extent in extents]
        places = zip(self.places(sizes, shape), table, extents, strict=True)
        return 0 in shape or all(
            repeats(known, extent) or 0 <= begin <= end <= known for (begin, end), known, extent in places
        )


@dataclass(frozen=True, eq=False)
class OpenWeight:
    """A constant that depends on sizes of a call.

    Attributes:
        shape: Its extents.
        table: What it is a part of. Along an open axis it has as few rows as come again and again: one where all are
            the same, 64 where each image has the same 64. Of a count it has no elements.
        source: How it is made.
    """

    shape: tuple[Extent, ...]
    table: np.ndarray
    source: Counted | TableWindow

    @property
    def symbols(self) -> frozenset[str]:
        """What it depends on."""
        return frozenset(symbol for extent in (*self.shape, *self.source.extents) for symbol in extent.symbols)

    @property
    def grows(self) -> bool:
        """Whether other sizes need another part of a table."""
        return isinstance(self.source, TableWindow) and any(
            not (extent.is_static and start.is_static) and not repeats(known, extent)
            for known, extent, start in zip(self.table.shape, self.shape, self.source.starts, strict=True)
        )

    @property
    def is_prefix(self) -> bool:
        """Whether at smaller sizes it is, in memory, the beginning of what it is at larger ones."""
        counts = self.source.numbers if isinstance(self.source, Count) else self.source.extents
        first = next((axis for axis, extent in enumerate(self.shape) if not extent.is_static), 0)
        outer, inner = self.shape[:first], self.shape[first + 1 :]
        is_fixed = all(extent.is_static for extent in (*counts, *inner))
        return is_fixed and all(extent == Extent(1) for extent in outer)

    def covers(self, sizes: Sizes) -> bool:
        """Return whether it is known at these sizes."""
        if isinstance(self.source, Counted):
            return self.source.is_at(sizes)
        return self.source.is_in(self.table.shape, self.shape, sizes)

    def at(self, sizes: Sizes) -> np.ndarray:
        """Return the constant, which nobody writes to, at sizes at which it is known."""
        shape = tuple(extent.at(sizes) for extent in self.shape)
        if isinstance(self.source, Counted):
            value = self.source.at(sizes, self.table.dtype)
        else:
            value = np.zeros(shape, self.table.dtype) if 0 in shape else self._part(self.source, sizes, shape)
        if value.shape != shape:
            value = np.tile(value, [extent // known for known, extent in zip(value.shape, shape, strict=True)])
        return value if value.flags.carray else np.array(value, order="C")

    def _part(self, window: TableWindow, sizes: Sizes, shape: tuple[int, ...]) -> np.ndarray:
        places = zip(window.places(sizes, shape), self.table.shape, self.shape, strict=True)
        taken = (slice(None) if repeats(known, extent) else slice(*place) for place, known, extent in places)
        part = self.table[tuple(taken)]
        if window.diagonal is None:
            return part
        rows, columns = window.diagonal
        lines = np.lib.stride_tricks.sliding_window_view(part, shape[columns], columns)  # that of the last row first
        lines = np.moveaxis(lines.swapaxes(rows, columns).squeeze(columns), -1, columns)
        return np.flip(lines, rows)
