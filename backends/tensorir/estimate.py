"""Estimated times of a chain of anchors in one kernel and in several."""

from __future__ import annotations

from dataclasses import dataclass

_TIE = 1.03
"""The resolution of the estimates. If they differ by less, one kernel is chosen, which has fewer starts and needs less
memory: of the zoo's layers for which one kernel was estimated to take 1 to 3% longer, three of four were up to 2%
faster in it."""


@dataclass(frozen=True)
class Estimate:
    """Cycles of the slowest thread.

    Attributes:
        together: In one kernel.
        apart: In several kernels, with the memory traffic between them.
        kernels: The number of these.
        margin: The speed-up that has to be estimated for one kernel to be chosen.
    """

    together: float
    apart: float
    kernels: int
    margin: float = 1.0

    @property
    def weighed(self) -> float:
        """The cycles in one kernel times the margin, to be compared with `apart`."""
        return self.margin * self.together

    @property
    def reason(self) -> str:
        """Why several kernels are faster; "" if one is."""
        if self.weighed < _TIE * self.apart:
            return ""
        names = {2: "two", 3: "three"}
        apart = f"{self.apart:.0f} in {names.get(self.kernels, self.kernels)}"
        margin = "" if self.margin == 1 else f", and not {self.margin} times as fast"
        return f"{self.together:.0f} cycles estimated in one kernel, {apart}{margin}"
