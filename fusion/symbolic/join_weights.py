"""What constants at several sizes have in common.

Of a constant as passes made it, only what it is at two sizes is known, and it may be several parts of a table: the
beginning, or what begins at a size, as positions behind those of a cache do. Which one, constants of imports at other
sizes tell, which make the table longer too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from fusion.declined import Declined
from fusion.extents import Extent, Sizes
from fusion.symbolic.fit import Fit, NoTableError, NotLinearError
from fusion.symbolic.open_weights import Count, Counted, CountedRuns, OpenWeight, TableWindow, repeats
from fusion.symbolic.table_parts import TablePart

_ORIGIN = Extent(0)
_MOST_COUNTED = 2**53
_FEWEST_IN_RUNS, _MOST_RUNS = 8, 4
"""Of fewer numbers nearly all are a few rows; a picture is read in one row and one for each edge."""
_LARGEST = np.iinfo(np.int64).max
"""Numbers are counted in int64, which uint64 goes beyond."""
_MOST_FEW = 16
"""Of more numbers that depend on sizes, each by itself, none are known."""


def join_weight(values: Sequence[np.ndarray], fit: Fit) -> np.ndarray | tuple[OpenWeight, ...]:
    """Return what constants at several sizes have in common: the constant, or those that depend on the sizes which it
    may be, the likeliest first.

    Args:
        values: The constant at each of the probes of `fit`.

    Raises:
        Declined: They differ otherwise.
    """
    if len({value.ndim for value in values}) > 1:
        raise Declined("a constant has another rank at other sizes")
    if all(np.array_equal(value, values[0]) for value in values):
        return values[0]
    shape = tuple(map(fit.extent, zip(*(value.shape for value in values), strict=True)))
    periods = [_period(values, axis, extent) for axis, extent in enumerate(shape)]
    short = [_beginning(value, periods) for value in values]
    counted = _counted(short, fit) or _ratio(short, fit)
    if counted is not None:
        return (OpenWeight(shape, values[0].reshape(-1)[:0], counted),)
    parts = (_part_of(short, window, fit.probes) for window in _windows(shape, periods, fit.probes[0]))
    rivals = tuple(OpenWeight(shape, part.values, window) for window, part in filter(None, parts))
    if rivals:
        return rivals
    runs = _runs(values, fit) or _few(values, fit)
    if runs is None:
        raise NoTableError("a constant is another one at other sizes, and no part of a table")
    return (OpenWeight(shape, values[0].reshape(-1)[:0], runs),)


def grown(weight: OpenWeight, value: np.ndarray, sizes: Sizes) -> OpenWeight | None:
    """Return `weight`, if `value` is what it is at these sizes, with `value` in its table where that is next to what it
    has; None if it is another one. Of rows that are all the same, an import that does not copy them has one; where an
    axis is 1, passes may have left it out."""
    if value.dtype != weight.table.dtype:
        return None
    shape = tuple(extent.at(sizes) for extent in weight.shape)
    if value.ndim != len(shape) and _without_ones(value.shape) == _without_ones(shape):
        value = value.reshape(shape)
    if isinstance(weight.source, Counted):
        return weight if weight.covers(sizes) and np.array_equal(weight.at(sizes), value) else None
    if not _may_be(value.shape, weight, sizes):
        return None
    if 0 in value.shape:
        return weight
    rows = weight.source.diagonal[:1] if weight.source.diagonal else ()
    known = zip(weight.table.shape, weight.shape, strict=True)
    periods = [
        None if axis in rows or extent.is_static or not repeats(count, extent) else count
        for axis, (count, extent) in enumerate(known)
    ]
    if not all(period is None or _is_repeated(value, period, axis) for axis, period in enumerate(periods)):
        return None
    part = _table_part(_beginning(value, periods), weight.source, sizes)
    joined = None if part is None else TablePart(weight.table, weight.source.firsts).joined(part)
    if joined is None:
        return None
    return replace(weight, table=joined.values, source=replace(weight.source, firsts=joined.firsts))


def _without_ones(shape: Sequence[int]) -> list[int]:
    return [extent for extent in shape if extent != 1]


def _along(value: np.ndarray, axes: Sequence[int], places: slice) -> np.ndarray:
    return value[tuple(places if axis in axes else slice(None) for axis in range(value.ndim))]


def _may_be(shape: tuple[int, ...], weight: OpenWeight, sizes: Sizes) -> bool:
    """Return whether `weight` has this shape at `sizes`, or has it but for rows that are copies of one."""
    if len(shape) != len(weight.shape):
        return False
    axes = zip(shape, weight.shape, weight.table.shape, strict=True)
    return all(count in (extent.at(sizes), known if known == 1 else None) for count, extent, known in axes)


def _beginning(value: np.ndarray, counts: Sequence[int | None]) -> np.ndarray:
    return value[tuple(map(slice, counts))]


def _period(values: Sequence[np.ndarray], axis: int, extent: Extent) -> int | None:
    """Return how many rows come again and again along an open axis of all `values`; None where none do."""
    counts = () if extent.is_static else (1, *([extent.coefficient] if extent.constant == 0 else []))
    return next((rows for rows in counts if all(_is_repeated(value, rows, axis) for value in values)), None)


def _is_repeated(value: np.ndarray, rows: int, axis: int) -> bool:
    """Return whether the first `rows` along an axis come again and again."""
    before, behind = value.shape[:axis], value.shape[axis + 1 :]
    if value.shape[axis] == 0 or value.shape[axis] % rows:
        return False
    parts = value.reshape(*before, -1, rows, *behind)
    return np.array_equal(np.broadcast_to(parts.take([0], axis), parts.shape), parts)


def _counted(values: Sequence[np.ndarray], fit: Fit) -> Count | None:
    """Return how `values` are counted; None if they are not."""
    lines = [_line(value) for value in values]
    known = [line for line in lines if line is not None]
    tells = len({value.shape for value in values}) == 1 or max(value.size for value in values) > 2
    if len(known) < len(lines) or not tells:
        return None
    firsts, steps = zip(*known, strict=True)
    try:
        along = tuple(_step(each, fit) for each in zip(*steps, strict=True))
        shape = tuple(map(fit.extent, zip(*(value.shape for value in values), strict=True)))
        return Count(fit.extent(firsts), along, shape)
    except NotLinearError:
        return None


def _step(steps: Sequence[int | None], fit: Fit) -> Extent:
    """Return the step along an axis, which a value with one place on that does not tell.

    Raises:
        NotLinearError: It is no extent.
    """
    told = {step for step in steps if step is not None}
    if len(told) < 2:
        return Extent(told.pop() if told else 0)
    if None in steps:
        raise NotLinearError("not all values tell the step between numbers")
    return fit.extent([step for step in steps if step is not None])


def _ratio(values: Sequence[np.ndarray], fit: Fit) -> Count | None:
    """Return of which sizes the number is the ratio that each element of `values` is; None where there is none."""
    if any(value.dtype.kind != "f" or not value.size or (value != value.flat[0]).any() for value in values):
        return None
    try:
        above, below = fit.ratio([float(value.flat[0]) for value in values])
        shape = tuple(map(fit.extent, zip(*(value.shape for value in values), strict=True)))
        return Count(above, (Extent(0),) * len(shape), shape, below)
    except NotLinearError:
        return None


def _runs(values: Sequence[np.ndarray], fit: Fit) -> CountedRuns | None:
    """Return the rows of counted numbers that `values` consist of, most of them in one; None where they do not."""
    if any(value.ndim != 1 or value.size < _FEWEST_IN_RUNS for value in values):
        return None
    split = [_split(value) for value in values]
    if len(set(map(len, split))) > 1 or not all(2 * max(map(len, runs)) > sum(map(len, runs)) for runs in split):
        return None
    found = [_counted(run, fit) for run in zip(*split, strict=True)]
    parts = [part for part in found if part is not None]
    return CountedRuns(tuple(parts)) if len(parts) == len(found) else None


def _few(values: Sequence[np.ndarray], fit: Fit) -> CountedRuns | None:
    """Return a few whole numbers, each of which depends on sizes by itself, as the first and the last place of an axis
    do; None where `values` are no such numbers."""
    if any(value.ndim != 1 or value.size > _MOST_FEW or value.dtype.kind not in "iu" for value in values):
        return None
    if len({value.size for value in values}) > 1 or any((value > _LARGEST).any() for value in values):
        return None
    try:
        numbers = [fit.extent(tuple(map(int, each))) for each in zip(*values, strict=True)]
    except NotLinearError:
        return None
    return CountedRuns(tuple(Count(number, (Extent(0),), (Extent(1),)) for number in numbers))


def _split(value: np.ndarray) -> list[np.ndarray]:
    """Return `value` in pieces that are as long as can be, each of numbers with the same step to the next."""
    pieces, first = list[np.ndarray](), 0
    steps = np.diff(value)
    while first < len(value) and len(pieces) < _MOST_RUNS:
        other = np.flatnonzero(steps[first:] != steps[first]) if first < len(steps) else np.zeros(0, np.int64)
        end = first + int(other[0]) + 1 if other.size else len(value)
        pieces.append(value[first:end])
        first = end
    return pieces if first == len(value) else [value]


def _line(value: np.ndarray) -> tuple[int, list[int | None]] | None:
    """Return the first number and the step from each to the next along each axis, None for an axis of one; None where
    there is no one step, or a number is no whole one."""
    if value.dtype.kind not in "iuf" or not value.size or not (abs(value) < _MOST_COUNTED).all():
        return None
    whole = value.astype(np.int64)
    steps = [np.unique(np.diff(whole, axis=axis)) for axis in range(value.ndim)]
    if any(step.size > 1 for step in steps) or (whole != value).any():
        return None
    return int(whole.flat[0]), [int(step[0]) if step.size else None for step in steps]


def _windows(shape: tuple[Extent, ...], periods: Sequence[int | None], symbols: Sizes) -> Iterator[TableWindow]:
    """Yield where in a table a constant of extents `shape`, whose rows come again after `periods`, may be: along
    diagonals, at the beginning, or from a size on."""
    origin, firsts = (_ORIGIN,) * len(shape), (0,) * len(shape)
    taken = [axis for axis, extent in enumerate(shape) if not extent.is_static and periods[axis] is None]
    for rows, columns in combinations(taken, 2):
        for extent in dict.fromkeys((shape[rows], shape[columns])):
            start = Extent(1 - extent.constant, -extent.coefficient, extent.symbols)
            yield TableWindow((*origin[:columns], start, *origin[columns + 1 :]), firsts, (rows, columns))
    yield TableWindow(origin, firsts)
    for axis in taken:
        for symbol in symbols:
            yield TableWindow((*origin[:axis], Extent(0, 1, (symbol,)), *origin[axis + 1 :]), firsts)


def _part_of(
    values: Sequence[np.ndarray], window: TableWindow, probes: Sequence[Sizes]
) -> tuple[TableWindow, TablePart] | None:
    """Return the part of a table that `values` are; None if they have nothing in common in it, or differ."""
    found: TablePart | None = None
    for value, sizes in zip(values, probes, strict=True):
        part = _table_part(value, window, sizes)
        if part is None or (found is not None and not found.overlap(part)[0].size):
            return None
        found = part if found is None else found.joined(part)
        if found is None:
            return None
    return None if found is None else (replace(window, firsts=found.firsts), found)


def _table_part(value: np.ndarray, window: TableWindow, sizes: Sizes) -> TablePart | None:
    """Return what of a table `value` is made of; None if it is not."""
    firsts = tuple(start.at(sizes) for start in window.starts)
    if window.diagonal is None:
        return TablePart(value, firsts)
    rows, columns = window.diagonal
    both = [rows, columns]
    if not np.array_equal(_along(value, both, slice(1, None)), _along(value, both, slice(-1))):
        return None
    below = _along(_along(value, [rows], slice(None, 0, -1)), [columns], slice(1)).swapaxes(rows, columns)
    return TablePart(np.concatenate([below, _along(value, [rows], slice(1))], columns), firsts)
