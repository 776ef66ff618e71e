"""What cost tables say of the two forms of a chain: one kernel, or several."""

from __future__ import annotations

from dataclasses import dataclass

_TIE = 1.03
"""Forms that the estimates put closer than this they cannot tell apart: of the zoo's layers that one kernel was
estimated to do in 1 to 3% more, three of four were up to 2% faster in it. It is one start less, and less memory."""


@dataclass(frozen=True)
class Estimate:
    """Cycles of the slowest thread.

    Attributes:
        together: In one kernel.
        apart: In several, with what goes through memory between them.
        kernels: How many those are.
        margin: How many times as fast one kernel has to be estimated to be chosen.
    """

    together: float
    apart: float
    kernels: int
    margin: float = 1.0

    @property
    def weighed(self) -> float:
        """What is compared with `apart`."""
        return self.margin * self.together

    @property
    def reason(self) -> str:
        """Why several kernels are the faster form; "" where one is."""
        if self.weighed < _TIE * self.apart:
            return ""
        names = {2: "two", 3: "three"}
        apart = f"{self.apart:.0f} in {names.get(self.kernels, self.kernels)}"
        margin = "" if self.margin == 1 else f", and not {self.margin} times as fast"
        return f"{self.together:.0f} cycles estimated in one kernel, {apart}{margin}"
