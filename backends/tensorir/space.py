"""Schedule spaces: a small set of points for each kernel, every one of which is correct, with an estimate of its
cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from backends.tensorir.result import Scheduled


class Point(Protocol):
    """One schedule of a kernel. `str(point)` is what `explain()` shows."""

    @property
    def cycles(self) -> float:
        """The estimated cycles of the slowest thread."""
        ...

    def axes(self) -> Mapping[str, int]:
        """Return its choice on each axis of the space, by name. Records of measurements identify points by this, so no
        two points of a space have the same."""
        ...


P = TypeVar("P", bound=Point)


def _nothing(point: Any) -> Mapping[str, float]:
    return {}


@dataclass(frozen=True)
class Space(Generic[P]):
    """The schedules that a template has for one kernel.

    Attributes:
        default: The point with the best estimate.
        every: () -> all points, the default among them, in no particular order.
        features: Point -> the numbers, by name, that a cost model learns from beside the axes and the estimate. All
            kernels of a family have the same names.
    """

    default: P
    every: Callable[[], Iterator[P]]
    features: Callable[[P], Mapping[str, float]] = _nothing

    def __iter__(self) -> Iterator[P]:
        return self.every()

    def find(self, axes: Mapping[str, int]) -> P | None:
        """Return the point with these choices; None if there is none."""
        return next((point for point in self if point.axes() == axes), None)


@dataclass(frozen=True)
class Choices:
    """A kernel's schedule space, with the template that it is of.

    Attributes:
        family: The name of the template.
        space: The space.
        emit: Point -> the kernel scheduled by it; its note says why where the template does not take the point. What
            was read of the kernel is not read again for each point.
    """

    family: str
    space: Space[Any]
    emit: Callable[[Any], Scheduled]
