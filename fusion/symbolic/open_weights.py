"""Constants that passes made of the sizes of a call: positions, masks of ones, the used part of a table."""

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
        table: What it is the beginning of along an axis; of extent 1 where it is the same all along an open axis. The
            first number and the second, if it counts.
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
        open_axes = zip(self.table.shape, self.shape, strict=True) if self.counts is None else ()
        return any(known > 1 and not extent.is_static for known, extent in open_axes)

    def to(self, table: np.ndarray) -> OpenWeight:
        """Return the same with another table, which may be larger."""
        one_of_copies = tuple(slice(1) if known == 1 else slice(None) for known in self.table.shape)
        return replace(self, table=table if self.counts else table[one_of_copies])

    def at(self, sizes: Sizes) -> np.ndarray:
        """Return the constant, which nobody writes to, at sizes that are no larger than those it was made of."""
        shape = tuple(extent.at(sizes) for extent in self.shape)
        if self.counts is None:
            value = _beginning(self.table, shape)
        else:
            counts = [extent.at(sizes) for extent in self.counts]
            first, second = self.table
            value = (first + (second - first) * np.arange(prod(counts), dtype=self.table.dtype)).reshape(counts)
        is_whole = value.shape == shape and value.flags.carray
        return value if is_whole else np.array(np.broadcast_to(value, shape), order="C")


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
    short = [_without_copies(value, shape) for value in values]
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


def _without_copies(value: np.ndarray, shape: Sequence[Extent]) -> np.ndarray:
    """Return `value` with extent 1 along each open axis on which it is the same everywhere."""
    for axis, extent in enumerate(shape):
        first = value.take([0], axis) if value.shape[axis] else value
        if not extent.is_static and np.array_equal(np.broadcast_to(first, value.shape), value):
            value = first
    return value


def _counts(value: np.ndarray) -> bool:
    """Return whether each number is one step further than the one before."""
    flat = value.reshape(-1)
    return value.dtype.kind in "iu" and value.size > 2 and len(np.unique(np.diff(flat))) == 1


def _beginning(value: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return value[tuple(map(slice, shape))]
