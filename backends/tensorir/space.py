"""What a template leaves open: a small set of points, each of which is right, with an estimate of what it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from backends.tensorir.result import Scheduled


class Point(Protocol):
    """One way to cut a kernel's loops; as text it is what `explain` shows."""

    @property
    def cycles(self) -> float:
        """Estimate for the slowest thread."""
        ...

    def axes(self) -> Mapping[str, int]:
        """Return what it chooses, by the names of the axes of its space: by this records of measurements know it, and
        no two points of a space choose the same."""
        ...


P = TypeVar("P", bound=Point)


def _nothing(point: Any) -> Mapping[str, float]:
    return {}


@dataclass(frozen=True)
class Space(Generic[P]):
    """The points of a template for one kernel.

    Attributes:
        default: The analytic choice.
        every: Returns all points, the default among them, in no order.
        features: Returns what the time of a point may depend on beside its axes and its estimate, as numbers by name,
            the same names for all kernels of the family: what a cost model learns from.
    """

    default: P
    every: Callable[[], Iterator[P]]
    features: Callable[[P], Mapping[str, float]] = _nothing

    def __iter__(self) -> Iterator[P]:
        return self.every()

    def find(self, axes: Mapping[str, int]) -> P | None:
        """Return the point that chooses this; None where there is none."""
        return next((point for point in self if point.axes() == axes), None)


@dataclass(frozen=True)
class Choices:
    """What the template of a kernel leaves open.

    Attributes:
        family: The name of the template.
        space: The points.
        emit: Returns the loops of one.
    """

    family: str
    space: Space[Any]
    emit: Callable[[Any], Scheduled]
