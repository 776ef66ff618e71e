"""Which candidate of a kernel is taken, given what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuning.rounds import BLOCKS, Times

_LEAST_GAIN = 0.02
"""Of the default's time, in every block of rounds."""


@dataclass(frozen=True)
class Decision:
    """What became of a kernel. Seconds are of all its calls in a run of the network.

    Attributes:
        candidate: The candidate to take; 0 is the default.
        seconds: With that candidate.
        default_s: With the default.
        other_s: With the fastest other candidate; infinite where none was measured.
        measured: How many candidates were measured.
    """

    candidate: int
    seconds: float
    default_s: float
    other_s: float
    measured: int


def decide(times: Mapping[int, Times]) -> Decision:
    """Return the fastest candidate that beats the default in every block by more than the noise."""
    default = times[0]
    least = {candidate: min([found.screening, *found.blocks]) for candidate, found in times.items()}
    wins = [candidate for candidate, found in times.items() if candidate and _wins(found, default)]
    best = min(wins, key=lambda candidate: min(times[candidate].blocks), default=0)
    others = [seconds for candidate, seconds in least.items() if candidate]
    measured = sum(found.screening < float("inf") for found in times.values())
    return Decision(best, least[best], least[0], min(others, default=float("inf")), measured)


def _wins(times: Times, default: Times) -> bool:
    blocks = list(zip(times.blocks, default.blocks, strict=False))
    return len(blocks) == BLOCKS and all(mine < (1 - _LEAST_GAIN) * its for mine, its in blocks)
