"""Constants that passes made of the sizes of a call: positions, masks for each image, the used part of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from fusion.declined import Declined
from fusion.extents import Extent, Sizes
from fusion.symbolic.fit import Fit


@dataclass(frozen=True, eq=False)
class OpenWeight:
    """A constant that depends on sizes of a call: the beginning of a table, or numbers that are counted.

    Attributes:
        shape: Its extents.
        table: What it is the beginning of along an axis. Along an open axis it has as few rows as come again and again:
            one where all are the same, 64 where each image has the same 64. The first number and the second, if it
            counts.
        counts: The extents of what is counted, each number one step further than the one before; None for a table.
    """

    shape: tuple[Extent, ...]
    table: np.ndarray
    counts: tuple[Extent, ...] | None = None

    @property
    def symbols(self) -> frozenset[str]:
        """The symbols that its extents depend on."""
        return frozenset(symbol for extent in self.shape for symbol in extent.symbols)

    @property
    def grows(self) -> bool:
        """Whether larger sizes need a larger table."""
        axes = zip(self.table.shape, self.shape, strict=True) if self.counts is None else ()
        return any(not extent.is_static and not repeats(known, extent) for known, extent in axes)

    @property
    def is_prefix(self) -> bool:
        """Whether at smaller sizes it is, in memory, the beginning of what it is at larger ones."""
        first = next(axis for axis, extent in enumerate(self.shape) if not extent.is_static)
        outer, inner = self.shape[:first], self.shape[first + 1 :]
        return all(extent == Extent(1) for extent in outer) and all(extent.is_static for extent in inner)

    def to(self, table: np.ndarray) -> OpenWeight:
        """Return the same with another table, which may be larger."""
        return self if self.counts else replace(self, table=self._without_repeats(table))

    def at(self, sizes: Sizes) -> np.ndarray:
        """Return the constant, which nobody writes to, at sizes that are no larger than those it was made of."""
        shape = self._shape_at(sizes)
        value = self._counted(sizes) if self.counts else _beginning(self.table, shape)
        if value.shape != shape:
            value = np.tile(value, [extent // max(known, 1) for known, extent in zip(value.shape, shape, strict=True)])
        return value if value.flags.carray else np.array(value, order="C")

    def can_be(self, value: np.ndarray, sizes: Sizes) -> bool:
        """Return whether `value` is the constant at `sizes`, which may be larger than its table is."""
        if value.shape != self._shape_at(sizes):
            return False
        if self.counts:
            return np.array_equal(self.at(sizes), value)
        short = self._without_repeats(value)
        axes = [axis for axis, known in enumerate(short.shape) if known < value.shape[axis]]
        repeated = all(_is_repeated(value, short.shape[axis], axis) for axis in axes)
        return repeated and np.array_equal(_beginning(short, self.table.shape), _beginning(self.table, short.shape))

    def _shape_at(self, sizes: Sizes) -> tuple[int, ...]:
        return tuple(extent.at(sizes) for extent in self.shape)

    def _counted(self, sizes: Sizes) -> np.ndarray:
        first, second = self.table
        counts = [extent.at(sizes) for extent in self.counts or ()]
        counted = first + (second - first) * np.arange(prod(counts), dtype=self.table.dtype)
        return np.asarray(counted.reshape(counts))

    def _without_repeats(self, value: np.ndarray) -> np.ndarray:
        """Return the beginning of `value` along the axes on which the constant is the same again and again."""
        axes = zip(self.table.shape, self.shape, strict=True)
        return value[tuple(slice(known if repeats(known, extent) else None) for known, extent in axes)]


def repeats(known: int, extent: Extent) -> bool:
    """Return whether the `known` rows of a table come again and again along an axis of this extent: one row, or as many
    as it is a multiple of."""
    return known == 1 or (extent.constant == 0 and known == extent.coefficient)


def join_weight(values: Sequence[np.ndarray], fit: Fit) -> np.ndarray | OpenWeight:
    """Return what constants at several sizes have in common: the constant, or one that depends on the sizes.

    Args:
        values: The constant at each of the probes of `fit`.

    Raises:
        Declined: They differ otherwise.
    """
    shape = _extents(values, fit)
    if all(extent.is_static for extent in shape):
        if any(not np.array_equal(value, values[0]) for value in values):
            raise Declined("a constant of one shape holds other numbers at other sizes")
        return values[0]
    short = [_shortest(value, shape) for value in values]
    largest = max(short, key=lambda value: value.size)
    if all(map(_counts, short)) and len({tuple(value.reshape(-1)[:2]) for value in short}) == 1:
        return OpenWeight(shape, largest.reshape(-1)[:2], _extents(short, fit))
    if any(not np.array_equal(value, _beginning(largest, value.shape)) for value in short):
        raise Declined("a constant is another one at other sizes, and not the beginning of one")
    return OpenWeight(shape, largest)


def _extents(values: Sequence[np.ndarray], fit: Fit) -> tuple[Extent, ...]:
    if len({value.ndim for value in values}) > 1:
        raise Declined("a constant has another rank at other sizes")
    return tuple(map(fit.extent, zip(*(value.shape for value in values), strict=True)))


def _shortest(value: np.ndarray, shape: Sequence[Extent]) -> np.ndarray:
    """Return `value` with as few rows along each open axis as come again and again."""
    for axis, extent in enumerate(shape):
        if not extent.is_static:
            periods = (1, *([extent.coefficient] if extent.constant == 0 else []))
            period = next((rows for rows in periods if _is_repeated(value, rows, axis)), value.shape[axis])
            value = value.take(range(period), axis)
    return value


def _is_repeated(value: np.ndarray, rows: int, axis: int) -> bool:
    """Return whether the first `rows` along an axis come again and again."""
    before, behind = value.shape[:axis], value.shape[axis + 1 :]
    if value.shape[axis] == 0 or value.shape[axis] % rows:
        return False
    parts = value.reshape(*before, -1, rows, *behind)
    return np.array_equal(np.broadcast_to(parts.take([0], axis), parts.shape), parts)


def _counts(value: np.ndarray) -> bool:
    """Return whether each number is one step further than the one before."""
    flat = value.reshape(-1)
    return value.dtype.kind in "iu" and value.size > 2 and len(np.unique(np.diff(flat))) == 1


def _beginning(value: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return value[tuple(map(slice, shape))]
