"""Interleaved rounds. Each runs the whole network once, with one of the candidates for every kernel.

So a candidate is measured where it will run: its inputs are in the caches of the cores that computed them, and its
weights are as cold as the rest of the network leaves them. The candidates for a kernel alternate, so that a drift of
the machine's speed affects all of them alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

SCREENING = 5
"""Runs of each candidate in the screening, after which most of them are dropped."""
_QUARTILE = 4
"""The time of several runs is their lower quartile, not their minimum: a core whose neighbours rest is faster for a
moment. In the spaces of 16 drawn kernels, on two vCPUs of Zen 3, the point that 5 runs chose took 4.8% longer than the
best if chosen by the minimum, 3.8% by the lower quartile; with 15 runs 4.9% and 3.3%."""
_FINALISTS = 2
"""How many candidates beside the first are measured again after the screening."""
_HOPELESS = 1.02
"""A finalist that takes longer than this times the fastest finalist in a block is dropped."""
BLOCKS = 4
BLOCK_RUNS = 5
"""Runs of each finalist in a block."""
_CHECKS = 12
"""Runs of the network before and after, in the final check."""
_UNKNOWN = float("inf")

Choice = list[int]
"""The number of one candidate for each kernel, or for each step."""
RunTurns = Callable[[Sequence[Choice]], Iterable[Sequence[float]]]
"""Runs the network with each of some choices for its steps, and yields the seconds of each step; yields fewer if the
time is over."""


@dataclass
class Times:
    """The seconds of one candidate for a kernel, for all its uses together; each is `time_of` several runs.

    Attributes:
        screening: In the screening; infinite if there was no time for it.
        blocks: In each later block, until it was dropped.
        screened: The number of runs in the screening.
    """

    screening: float
    blocks: list[float] = field(default_factory=list)
    screened: int = SCREENING


@dataclass
class Rounds:
    """Runs a network.

    Attributes:
        kernels: The kernel of each step.
        run: Runs the network.
        over: Whether the time for all of it is over; an unfinished block is discarded then.
        evenly: If not 0, the runs of every candidate; there are no finalists then, and no winner.
    """

    kernels: Sequence[int]
    run: RunTurns
    over: Callable[[], bool]
    evenly: int = 0

    def compare(self, candidates: Sequence[Sequence[int]]) -> list[dict[int, Times]]:
        """Return the times of each kernel's candidates. The first candidate is the default, which others have to
        beat."""
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
        """Return the seconds of the network with each of two choices, as sums over steps of `time_of` several runs;
        infinite if there is no time."""
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

        If `crowded`, all kernels try candidates in each round, which takes fewest rounds, and a candidate runs behind
        others of the kernel before it each time: behind the same one, which leaves the caches as it found them or not,
        the default of a matmul of 50x160x96 took 11 us in each of four sessions, and 6 where orders were drawn.
        Otherwise most kernels around a measured one run their usual candidate, as the speed of a kernel depends on what
        ran before it.
        """
        took: list[dict[int, list[float]]] = [{each: [] for each in candidates[kernel]} for kernel in self.kernels]
        order = {kernel: place for place, kernel in enumerate(dict.fromkeys(self.kernels))}
        cycle = max(map(len, candidates), default=0) * (1 if crowded else 3)

        def measured(turn: int, kernel: int) -> int | None:
            some = candidates[kernel]
            # Neighbours are measured in different rounds.
            apart = 1 + _FINALISTS + (turn // cycle if crowded else 0)
            place = (turn + order[kernel] * apart) % cycle
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
    """Return the time of a run, given those of several: the lower quartile; infinite if there are none."""
    return sorted(seconds)[len(seconds) // _QUARTILE] if seconds else _UNKNOWN


def _hopeful(seconds: dict[int, float], candidates: Sequence[int]) -> list[int]:
    """Return the first candidate, and those that may still win: that are faster than it in this block, and close to the
    fastest."""
    first, *others = candidates
    least = min(seconds.values())
    return [first, *(each for each in others if seconds[each] < seconds[first] and seconds[each] <= _HOPELESS * least)]


def _finalists(seconds: dict[int, float], candidates: Sequence[int]) -> list[int]:
    first, *others = candidates
    better = sorted((other for other in others if seconds[other] < seconds[first]), key=lambda other: seconds[other])
    return [first, *better[:_FINALISTS]]
