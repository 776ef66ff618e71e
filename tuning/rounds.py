"""Interleaved rounds: each runs the whole network once, every kernel in one of its forms.

So a form is measured where it will run: its inputs lie in the caches of those cores whose threads made them, its
weights are as cold as the rest of the network leaves them. All forms of a kernel take turns, so that no drift of the
machine's speed falls on one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

_SCREENING = 5
"""Runs of each form before most of them are dropped."""
_FINALISTS = 2
"""Forms beside the first that are measured again."""
BLOCKS = 4
_BLOCK_RUNS = 5
"""Runs of each finalist in a block; its time in the block is the least of them."""
_CHECKS = 12
"""Runs of the network as it is, and as it is to be."""
_UNKNOWN = float("inf")

RunStep = Callable[[int, int], float]
"""(step, form) -> seconds."""
Forms = list[int]
"""One form for each kernel."""


@dataclass
class Times:
    """Seconds of one form of a kernel, of all its uses together, the least of several runs.

    Attributes:
        screening: In the first rounds; infinite where there was no time for any.
        blocks: In each block of later rounds; empty for forms that were dropped.
    """

    screening: float
    blocks: list[float] = field(default_factory=list)


@dataclass
class Rounds:
    """Runs a network.

    Attributes:
        kernels: The kernel of each step.
        run: Runs a step.
        over: Whether the time for it all is over; what is not finished then is left out.
    """

    kernels: Sequence[int]
    run: RunStep
    over: Callable[[], bool]

    def compare(self, forms: Sequence[Sequence[int]]) -> list[dict[int, Times]]:
        """Return the times of each kernel's forms, the first of which is what others have to beat."""
        usual = [some[0] for some in forms]
        screened = self._block(forms, usual, _SCREENING, crowded=True)
        times = [{form: Times(seconds) for form, seconds in found.items()} for found in screened]
        finals = [_finalists(found, some) for found, some in zip(screened, forms, strict=True)]
        for _ in range(BLOCKS):
            block = self._block(finals, usual, _BLOCK_RUNS, crowded=False)
            if self.over():
                break
            for kernel, found in enumerate(block):
                for form, seconds in found.items():
                    times[kernel][form].blocks.append(seconds)
            usual = [min(found, key=found.__getitem__) for found in block]
        return times

    def check(self, before: Forms, after: Forms) -> tuple[float, float]:
        """Return the seconds of the network in two forms, each of its steps the least of several runs; infinite ones
        where there is no time."""
        least = [[_UNKNOWN] * len(self.kernels) for _ in range(2)]
        for _ in range(_CHECKS):
            if self.over():
                break
            for seconds, forms in zip(least, (before, after), strict=True):
                for step, kernel in enumerate(self.kernels):
                    seconds[step] = min(seconds[step], self.run(step, forms[kernel]))
        return sum(least[0]), sum(least[1])

    def _block(
        self, forms: Sequence[Sequence[int]], usual: Forms, runs: int, *, crowded: bool
    ) -> list[dict[int, float]]:
        """Return the least time of `runs` runs of each form of each kernel.

        Unless it is `crowded`, where rounds are few, most of what is around a form that is measured is in its usual
        form: a kernel is faster or slower with what comes before it on another thread.
        """
        least: list[dict[int, float]] = [dict.fromkeys(forms[kernel], _UNKNOWN) for kernel in self.kernels]
        order = list(dict.fromkeys(self.kernels))
        cycle = max(map(len, forms), default=0) * (1 if crowded else 3)
        for turn in range(runs * cycle):
            if self.over():
                break
            for step, kernel in enumerate(self.kernels):
                some = forms[kernel]
                # Neighbours have their turns one after the other.
                place = (turn + order.index(kernel) * (1 + _FINALISTS)) % cycle
                if crowded:
                    place %= len(some)
                seconds = self.run(step, some[place] if place < len(some) else usual[kernel])
                if place < len(some):
                    least[step][some[place]] = min(least[step][some[place]], seconds)
        return self._by_kernel(least, forms)

    def _by_kernel(self, least: list[dict[int, float]], forms: Sequence[Sequence[int]]) -> list[dict[int, float]]:
        totals: list[dict[int, float]] = [dict.fromkeys(some, 0.0) for some in forms]
        for step, kernel in enumerate(self.kernels):
            for form, seconds in least[step].items():
                totals[kernel][form] += seconds
        return totals


def _finalists(seconds: dict[int, float], forms: Sequence[int]) -> list[int]:
    first, *others = forms
    better = sorted((form for form in others if seconds[form] < seconds[first]), key=lambda form: seconds[form])
    return [first, *better[:_FINALISTS]]
