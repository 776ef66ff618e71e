"""What the cost tables say of the two forms of a chain: one kernel, or several."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Estimate:
    """Cycles of the slowest thread.

    Attributes:
        together: In one kernel.
        apart: In several, with what goes through memory between them.
        kernels: How many those are.
    """

    together: float
    apart: float
    kernels: int

    @property
    def reason(self) -> str:
        """Why several kernels are the faster form; "" where one is."""
        if self.together < self.apart:
            return ""
        names = {2: "two", 3: "three"}
        apart = f"{self.apart:.0f} in {names.get(self.kernels, self.kernels)}"
        return f"{self.together:.0f} cycles estimated in one kernel, {apart}"
