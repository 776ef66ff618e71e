"""The phases of a transposed convolution: which taps the positions of its result meet, and where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import gcd

from tvm import tirx
from tvm.sym import Analyzer

from backends.cpu.kernels.shared.window import Window
from backends.tensorir.emit import Expr
from backends.tensorir.extents import Extent, extent_of, is_same, typical


@dataclass(frozen=True)
class Phase:
    """What the result's positions with one value of (position + padding) mod stride read, along one axis.

    Attributes:
        number: That value.
        taps: Positions in the kernel, in the order of the input's positions that they meet.
        offset: The first tap of the result's position y meets the input's position (y + padding) // stride + offset.
    """

    number: int
    taps: tuple[int, ...]
    offset: int

    @staticmethod
    def all_of(window: Window, axis: int) -> list[Phase]:
        """Return the phases along the height (0) or the width (1); one that no tap meets has none."""
        stride, dilation = window.strides[axis], window.dilation[axis]
        found = []
        for number in range(stride):
            taps = [tap for tap in range(window.kernel[axis]) if (tap * dilation - number) % stride == 0][::-1]
            found.append(Phase(number, tuple(taps), (number - taps[0] * dilation) // stride if taps else 0))
        return found


def tap_step(window: Window, axis: int) -> int:
    """Return the distance in the input between neighbouring taps of a phase."""
    return window.dilation[axis] // gcd(window.dilation[axis], window.strides[axis])


@dataclass(frozen=True)
class Strip:
    """Phases along one axis that have equally many taps and positions in the result.

    Attributes:
        numbers: Of the phases.
        first: Position in the result of the first of each.
        start: Position in the input that the first tap meets there.
        count: Positions in the result.
        taps: Taps.
    """

    numbers: tuple[int, ...]
    first: tuple[int, ...]
    start: tuple[int, ...]
    count: Extent
    taps: int

    @staticmethod
    def all_of(window: Window, axis: int, extent: Extent) -> list[Strip]:
        """Return the strips of a result of `extent` positions."""
        stride, padding = window.strides[axis], window.padding[axis]
        found = []
        for phase in Phase.all_of(window, axis):
            first = (phase.number - padding) % stride
            count = _ceildiv(extent - first, stride)
            if not isinstance(count, int) or count > 0:
                start = (first + padding) // stride + phase.offset
                found.append(Strip((phase.number,), (first,), (start,), count, len(phase.taps)))
        alike: list[list[Strip]] = []
        for strip in sorted(found, key=lambda strip: (strip.taps, typical(strip.count))):
            same = (some for some in alike if some[0].taps == strip.taps and is_same(some[0].count, strip.count))
            strips = next(same, None)
            if strips is None:
                alike.append([strip])
            else:
                strips.append(strip)
        return [_joined(strips) for strips in alike]


def _ceildiv(extent: Extent, size: int) -> Extent:
    if isinstance(extent, int):
        return -(-extent // size)
    return extent_of(Analyzer().simplify(tirx.floordiv(extent + (size - 1), size)))


def _joined(strips: Sequence[Strip]) -> Strip:
    parts = [(strip.numbers[0], strip.first[0], strip.start[0]) for strip in strips]
    numbers, first, start = zip(*parts, strict=True)
    return replace(strips[0], numbers=numbers, first=first, start=start)


def pick(values: Sequence[int], index: Expr) -> Expr:
    """Return `values[index]`."""
    if len(set(values)) == 1:
        return tirx.const(values[0], "int64")
    if len({after - before for before, after in pairwise(values)}) == 1:
        return index * (values[1] - values[0]) + values[0]
    *others, found = (tirx.const(value, "int64") for value in values)
    for position, value in reversed(list(enumerate(others))):
        found = tirx.Select(index == position, value, found)
    return found
