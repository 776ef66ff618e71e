"""The guards of each kind of operand: which conditions its values have, and what the error says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from fusion.errors import OTHER_VALUES, ExecutionError
from fusion.guards.conditions import Bounds, Condition, Finite, NotZero, entries_of


@dataclass(frozen=True)
class Guard:
    """What must hold of values.

    Attributes:
        kind: What they are, in a word.
        what, where, why: Of the error, as in FusionError. In `why` the texts `{value}`, `{low}`, `{high}` and `{size}`
            become the value that fails, its bounds, and the number of entries up to the last one: a kernel whose
            bounds only a call knows has the same text.
        conditions: Of the values whose position in memory is 0, 1, 2, ... modulo their number.
    """

    kind: str
    what: str
    where: str
    why: tuple[str, ...]
    conditions: tuple[Condition, ...]


def failure(what: str, where: str, why: str, value: float, bounds: Sequence[int]) -> ExecutionError:
    """Return the error of a check that found `value`, which is outside its `bounds`, if it has any."""
    numbers = dict(zip(("low", "high", "size"), (*bounds, bounds[-1] + 1), strict=True)) if bounds else {}
    return ExecutionError(what, where=where, why=why.format(value=value, **numbers), hint=OTHER_VALUES)


def operand_guard(kind: str, where: str, axes: Sequence[int], shape: Sequence[int]) -> Guard:
    """Return the guard of an operand of an operator on data of `shape`.

    Args:
        kind: "index"; "position", an index that does not count from the end; "length"; "divisor"; or "box": the number
            of an image and four coordinates.
        axes: Those that each index in turn is into, or the one that lengths are of; none means the elements in
            row-major order.
    """
    match kind:
        case "divisor":
            return divisor_guard(where)
        case "length":
            return length_guard(where, axes[0], shape[axes[0]])
        case "box":
            return boxes_guard(where, shape[0])
    # Where elements are counted in row-major order, errors speak of one long axis.
    return index_guard(where, axes or [0], shape if axes else [prod(shape)], negative=kind == "index")


def index_guard(where: str, axes: Sequence[int], shape: Sequence[int], negative: bool = True) -> Guard:
    """Return the guard of indices into `axes` of a tensor of `shape`, of which each in turn has one."""
    sizes = [shape[axis] for axis in axes]
    conditions = tuple(entries_of(size) if negative else Bounds(0, size - 1) for size in sizes)
    why = tuple(
        f"axis {axis} has {{size}} entries: index {{value}} is not in {{low}}..{{high}}"
        if size
        else f"axis {axis} has no entry: there is none at index {{value}}"
        for axis, size in zip(axes, sizes, strict=True)
    )
    return Guard("index", "an index is outside its axis", where, why, conditions)


def length_guard(where: str, axis: int, size: int) -> Guard:
    """Return the guard of how many entries of an axis of `size` are meant."""
    why = f"axis {axis} has {{high}} entries: {{value}} is not in 0..{{high}}"
    return Guard("length", "a length is outside its axis", where, (why,), (Bounds(0, size),))


def start_guard(where: str, last: int) -> Guard:
    """Return the guard of where rows begin that are written, which is no later than `last`."""
    why = "the first one is {value}, which is not in {low}..{high}"
    return Guard("start", "rows are written outside their axis", where, (why,), (Bounds(0, last),))


def keys_guard(where: str, most: int) -> Guard:
    """Return the guard of the number of the last key in each row of a batch, of which there are no more than `most`."""
    why = "the last key is number {value}, which is not in {low}..{high}"
    return Guard("keys", "a cache has no place for its keys", where, (why,), (Bounds(0, most - 1),))


def size_guard(where: str, axis: int, size: int) -> Guard:
    """Return the guard of how many entries a result has along an axis, which was compiled for `size`."""
    why = f"the model says that axis {axis} of its result has {{low}} entries, and the run {{value}}"
    return Guard("size", "a result has another size than the model says", where, (why,), (Bounds(size, size),))


def batch_guard(where: str, size: int) -> Guard:
    """Return the guard of which of `size` images something is in."""
    why = ("there are {size} images: {value} is not in 0..{high}",)
    return Guard("image", "an index is outside the batch", where, why, (Bounds(0, size - 1),))


def finite_guard(where: str) -> Guard:
    """Return the guard of coordinates, float32."""
    return Guard("coordinate", "a coordinate is not finite", where, ("it is {value}",), (Finite(),))


def ratio_guard(where: str) -> Guard:
    """Return the guard of a share that is less than all."""
    why = "it is {value}, and must be 0 or more and less than 1"
    return Guard("ratio", "a ratio is out of range", where, (why,), (Bounds(0, float(np.nextafter(np.float32(1), 0))),))


def boxes_guard(where: str, images: int) -> Guard:
    """Return the guard of float32 rows of the number of an image and four coordinates."""
    image, (coordinate,) = batch_guard(where, images), finite_guard(where).why
    conditions = (*image.conditions, *[Finite()] * 4)
    return Guard("box", "a box is not valid", where, (*image.why, *[coordinate] * 4), conditions)


def divisor_guard(where: str) -> Guard:
    """Return the guard of what integers are divided by."""
    return Guard("divisor", "an integer is divided by zero", where, ("the divisor is {value}",), (NotZero(),))
