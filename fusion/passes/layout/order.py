"""Algebra of layouts: the order of a tensor's logical axes in memory.

An `Order` is a tuple: entry i is the logical axis stored at position i. The identity is row-major storage. NHWC
storage of a logical NCHW tensor is (0, 2, 3, 1). Axes of size 1 take no space, so their place in an order means
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

Order = tuple[int, ...]
Shape = tuple[int, ...]


def identity(rank: int) -> Order:
    """Return row-major storage of `rank` axes."""
    return tuple(range(rank))


def channels_last(rank: int) -> Order:
    """Return the order N, spatial axes, C of a logical N, C, spatial tensor."""
    return (0, *range(2, rank), 1)


def stored_shape(order: Order, shape: Shape) -> Shape:
    """Return the shape of the tensor in memory."""
    return tuple(shape[axis] for axis in order)


def same_storage(first: Order, second: Order, shape: Shape) -> bool:
    """Return whether both orders put the elements of `shape` at the same places in memory."""
    return _without_ones(first, shape) == _without_ones(second, shape)


def transposed_axes(given: Sequence[int] | None, rank: int) -> Order:
    """Return the axes of `permute_dims(x, given)`, counted from the first of `rank`; all reversed where none are
    given."""
    return tuple(reversed(range(rank))) if given is None else tuple(int(axis) % rank for axis in given)


def permuted(order: Order, axes: tuple[int, ...]) -> Order:
    """Return the order of `permute_dims(x, axes)` held in the storage of `x`: the transpose costs nothing."""
    return tuple(axes.index(axis) for axis in order)


def last_axis_is(order: Order, axis: int, shape: Shape) -> bool:
    """Return whether `axis` is the one that runs contiguously in memory."""
    dense = _without_ones(order, shape)
    return shape[axis] == 1 or (bool(dense) and dense[-1] == axis)


def reshape(order: Order, old: Shape, new: Shape) -> tuple[Order, Order]:
    """Return how `reshape(x, new)` can be stored when `x` of shape `old` is stored in `order`.

    Returns:
        The order that `x` has to be brought to first (`order` itself where nothing needs to move), and the order of
        the result.
        Axes that are split or merged together must lie next to each other; the groups they form are ordered by where
        they end, so that the contiguous axis stays contiguous: matmuls and channels-last operators want it so.
    """
    groups = factor_groups(old, new)
    needed: list[int] = []
    result: list[int] = []
    for old_axes, new_axes in sorted(groups, key=lambda group: _last_place(group[0], order, old)):
        needed += old_axes
        result += new_axes
    if same_storage(tuple(needed), order, old):
        return order, place_ones(result, new)
    return place_ones(needed, old), place_ones(result, new)


def _without_ones(order: Order, shape: Shape) -> Order:
    return tuple(axis for axis in order if shape[axis] != 1)


def _last_place(axes: list[int], order: Order, shape: Shape) -> int:
    return max((order.index(axis) for axis in axes if shape[axis] != 1), default=-1)


def place_ones(order: list[int], shape: Shape) -> Order:
    """Put each size-1 axis behind the axis that precedes it, so that orders that mean the same look the same."""
    placed = [axis for axis in order if shape[axis] != 1]
    for axis in (axis for axis in range(len(shape)) if shape[axis] == 1):
        placed.insert(placed.index(axis - 1) + 1 if axis else 0, axis)
    return tuple(placed)


def factor_groups(old: Shape, new: Shape) -> list[tuple[list[int], list[int]]]:
    """Split both shapes into the smallest runs of axes with equal products; empty tensors form one group."""
    if prod(old) == 0:
        return [(list(range(len(old))), list(range(len(new))))]
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        left, right = ([i], []) if i < len(old) else ([], [j])
        i, j = i + len(left), j + len(right)
        while prod(old[a] for a in left) != prod(new[a] for a in right):
            if prod(old[a] for a in left) < prod(new[a] for a in right):
                left.append(i)
                i += 1
            else:
                right.append(j)
                j += 1
        groups.append((left, right))
    return groups
