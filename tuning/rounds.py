"""Interleaved rounds: each runs the whole network once, with one of the candidates for every kernel.

So a candidate is measured where it will run: its inputs lie in the caches of those cores whose threads made them, its
weights are as cold as the rest of the network leaves them. All candidates for a kernel take turns, so that no drift of
the machine's speed falls on one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

SCREENING = 5
"""Runs of each candidate before most of them are dropped."""
_QUARTILE = 4
"""One run of so many, the fastest, may be faster than what is taken for the time of all: a core whose neighbours rest
is faster for a moment. Of 16 drawn kernels' spaces, two vCPUs of Zen 3, the point that 5 runs said to be best took 4.8%
longer than the best by the least of them, 3.8% by the lower quartile; that 15 runs said to be, 4.9% and 3.3%."""
_FINALISTS = 2
"""Candidates beside the first that are measured again."""
_HOPELESS = 1.02
"""Of the fastest finalist's time in a block: one that took more is not measured again."""
BLOCKS = 4
BLOCK_RUNS = 5
"""Runs of each finalist in a block."""
_CHECKS = 12
"""Runs of the network as it is, and as it is to be."""
_UNKNOWN = float("inf")

Choice = list[int]
"""The number of one candidate for each kernel, or for each step."""
RunTurns = Callable[[Sequence[Choice]], Iterable[Sequence[float]]]
"""Runs the network with each of some choices for its steps, and yields the seconds of these; fewer runs where the time
is over."""


@dataclass
class Times:
    """Seconds of one candidate for a kernel, of all its uses together, `time_of` several runs.

    Attributes:
        screening: In the first rounds; infinite where there was no time for any.
        blocks: In each block of later rounds before it was dropped.
        screened: Runs of the first rounds.
    """

    screening: float
    blocks: list[float] = field(default_factory=list)
    screened: int = SCREENING


@dataclass
class Rounds:
    """Runs a network.

    Attributes:
        kernels: The kernel of each step.
        run: Runs them.
        over: Whether the time for it all is over; what is not finished then is left out.
        evenly: Runs of each candidate, where all are to be known as well as each other and none wins; 0 where the best
            of them run again.
    """

    kernels: Sequence[int]
    run: RunTurns
    over: Callable[[], bool]
    evenly: int = 0

    def compare(self, candidates: Sequence[Sequence[int]]) -> list[dict[int, Times]]:
        """Return the times of each kernel's candidates, the first of which is what others have to beat."""
        usual = [some[0] for some in candidates]
        runs = self.evenly or SCREENING
        screened = self._block(candidates, usual, runs, crowded=True)
        times = [
            {candidate: Times(seconds, screened=runs) for candidate, seconds in found.items()} for found in screened
        ]
        if self.evenly:
            return times
        finals = [_finalists(found, some) for found, some in zip(screened, candidates, strict=True)]
        for _ in range(BLOCKS):
            if all(len(some) == 1 for some in finals):
                break
            block = self._block(finals, usual, BLOCK_RUNS, crowded=False)
            if self.over():
                break
            for kernel, found in enumerate(block):
                for candidate, seconds in found.items():
                    times[kernel][candidate].blocks.append(seconds)
            usual = [min(found, key=found.__getitem__) for found in block]
            finals = [_hopeful(found, some) for found, some in zip(block, finals, strict=True)]
        return times

    def check(self, before: Choice, after: Choice) -> tuple[float, float]:
        """Return the seconds of the network with two choices, each of its steps `time_of` several runs; infinite ones
        where there is no time."""
        both: list[list[list[float]]] = [[[] for _ in self.kernels] for _ in range(2)]
        turns = [[choice[kernel] for kernel in self.kernels] for choice in (before, after)]
        for turn, seconds in enumerate(self.run(turns * _CHECKS)):
            for step, took in enumerate(seconds):
                both[turn % 2][step].append(took)
        without, with_choice = (sum(map(time_of, seconds)) for seconds in both)
        return without, with_choice

    def _block(
        self, candidates: Sequence[Sequence[int]], usual: Choice, runs: int, *, crowded: bool
    ) -> list[dict[int, float]]:
        """Return the time of `runs` runs of each candidate for each kernel.

        Unless it is `crowded`, where rounds are few, most of what is around a candidate that is measured is the usual
        one: a kernel is faster or slower with what comes before it on another thread.
        """
        took: list[dict[int, list[float]]] = [{each: [] for each in candidates[kernel]} for kernel in self.kernels]
        order = {kernel: place for place, kernel in enumerate(dict.fromkeys(self.kernels))}
        cycle = max(map(len, candidates), default=0) * (1 if crowded else 3)

        def measured(turn: int, kernel: int) -> int | None:
            some = candidates[kernel]
            # Neighbours have their turns one after the other.
            place = (turn + order[kernel] * (1 + _FINALISTS)) % cycle
            if crowded:
                place %= len(some)
            return some[place] if place < len(some) else None

        turns = [[measured(turn, kernel) for kernel in self.kernels] for turn in range(runs * cycle)]
        choices = [
            [usual[kernel] if each is None else each for kernel, each in zip(self.kernels, turn, strict=True)]
            for turn in turns
        ]
        for turn, seconds in zip(turns, self.run(choices), strict=False):
            for found, each, taken in zip(took, turn, seconds, strict=True):
                if each is not None:
                    found[each].append(taken)
        return self._by_kernel(took, candidates)

    def _by_kernel(
        self, took: list[dict[int, list[float]]], candidates: Sequence[Sequence[int]]
    ) -> list[dict[int, float]]:
        totals: list[dict[int, float]] = [dict.fromkeys(some, 0.0) for some in candidates]
        for step, kernel in enumerate(self.kernels):
            for candidate, seconds in took[step].items():
                totals[kernel][candidate] += time_of(seconds)
        return totals


def time_of(seconds: Sequence[float]) -> float:
    """Return what a run takes, given what several took: the lower quartile; infinite where there was none."""
    return sorted(seconds)[len(seconds) // _QUARTILE] if seconds else _UNKNOWN


def _hopeful(seconds: dict[int, float], candidates: Sequence[int]) -> list[int]:
    """Return the first candidate, and the others that may still be the one to take: that is none that was slower than
    the first in a block."""
    first, *others = candidates
    least = min(seconds.values())
    return [first, *(each for each in others if seconds[each] < seconds[first] and seconds[each] <= _HOPELESS * least)]


def _finalists(seconds: dict[int, float], candidates: Sequence[int]) -> list[int]:
    first, *others = candidates
    better = sorted((other for other in others if seconds[other] < seconds[first]), key=lambda other: seconds[other])
    return [first, *better[:_FINALISTS]]
