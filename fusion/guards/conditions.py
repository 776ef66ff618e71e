"""What may be asked of one value, as data, which both forms of a check read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bounds:
    """The numbers from `low` to `high`, which are integers, also as floats, or floats; to negative ones `wrap` is
    added."""

    low: int
    high: float
    wrap: int = 0

    @property
    def largest(self) -> float:
        """The largest value that readers get."""
        return max(self.high, self.wrap - 1)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Both bounds, for errors; none where one is no integer."""
        return (self.low, self.high) if isinstance(self.high, int) else ()


@dataclass(frozen=True)
class NotZero:
    """Every integer but 0, as it is."""

    largest = 0
    numbers = ()


@dataclass(frozen=True)
class Finite:
    """Every float but NaN and the infinities, as it is."""

    largest = 0
    numbers = ()


Condition = Bounds | NotZero | Finite


def entries_of(size: int) -> Bounds:
    """Return the indices of an axis of `size` entries, of which negative ones count from its end."""
    return Bounds(-size, size - 1, size)
