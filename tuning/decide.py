"""Decides which candidate of a kernel to use, from measured times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isinf
from statistics import median

from tuning.record import Record
from tuning.rounds import BLOCK_RUNS, BLOCKS, Times
from tuning.task import TuningTask

_LEAST_GAIN = 0.02
"""The share of the default's time by which a candidate has to be faster, in every block of rounds."""


@dataclass(frozen=True)
class CandidateTimes:
    """The seconds of a call with one candidate.

    Attributes:
        candidate: The number of the candidate; 0 is the default.
        seconds: The median over blocks of rounds.
        spread: The largest minus the smallest of these; 0 if there was one.
        runs: How often it ran.
        default_s: The seconds of the default in the same blocks.
    """

    candidate: int
    seconds: float
    spread: float
    runs: int
    default_s: float

    def record(self, task: TuningTask, axes: Mapping[str, int], *, wins: bool, measured_at: float) -> Record:
        """Return the record of this for the point that chooses `axes`, which the candidate was of."""
        return Record(
            task=task,
            point=axes,
            seconds=self.seconds,
            spread=self.spread,
            runs=self.runs,
            default_s=self.default_s,
            wins=wins,
            measured_at=measured_at,
        )


@dataclass(frozen=True)
class Decision:
    """The decision for one kernel. Seconds are those of all its calls in a run of the network.

    Attributes:
        candidate: The candidate to use; 0 is the default.
        seconds: The seconds with that candidate.
        default_s: The seconds with the default.
        measured: How many candidates were measured.
        times: The times of all candidates, the default included; empty if the time was over before all had run.
        uses: The number of calls of the kernel in a run.
    """

    candidate: int
    seconds: float
    default_s: float
    measured: int
    times: tuple[CandidateTimes, ...] = ()
    uses: int = 1


def decide(times: Mapping[int, Times], uses: int) -> Decision:
    """Return the fastest candidate that beats the default in every block by more than the noise.

    Args:
        uses: Calls of the kernel in a run.
    """
    default = times[0]
    least = {candidate: min([found.screening, *found.blocks]) for candidate, found in times.items()}
    wins = [candidate for candidate, found in times.items() if candidate and _wins(found, default)]
    best = min(wins, key=lambda candidate: min(times[candidate].blocks), default=0)
    measured = sum(found.screening < float("inf") for found in times.values())
    all_ran = uses > 0 and not any(isinf(found.screening) for found in times.values())
    return Decision(
        candidate=best,
        seconds=least[best],
        default_s=least[0],
        measured=measured,
        times=tuple(_times_of(candidate, found, default, uses) for candidate, found in times.items() if all_ran),
        uses=uses,
    )


def _times_of(candidate: int, found: Times, default: Times, uses: int) -> CandidateTimes:
    blocks = len(found.blocks)  # fewer than the default's where it was dropped
    mine, its = (found.blocks, default.blocks[:blocks]) if blocks else ([found.screening], [default.screening])
    return CandidateTimes(
        candidate=candidate,
        seconds=median(mine) / uses,
        spread=(max(mine) - min(mine)) / uses,
        runs=blocks * BLOCK_RUNS or found.screened,
        default_s=median(its) / uses,
    )


def _wins(times: Times, default: Times) -> bool:
    blocks = list(zip(times.blocks, default.blocks, strict=False))
    return len(blocks) == BLOCKS and all(mine < (1 - _LEAST_GAIN) * its for mine, its in blocks)
