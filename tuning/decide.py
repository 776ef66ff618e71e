"""Which form of a kernel is taken, given what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuning.rounds import BLOCKS, Times

_LEAST_GAIN = 0.02
"""Of the default's time, in every block of rounds."""


@dataclass(frozen=True)
class Verdict:
    """What became of a kernel. Seconds are of all its calls in a run of the network.

    Attributes:
        form: The form to take; 0 is the default.
        seconds: In that form.
        default_s: In the default.
        other_s: In the fastest other form; infinite where none was measured.
        measured: How many forms were measured.
    """

    form: int
    seconds: float
    default_s: float
    other_s: float
    measured: int


def decide(times: Mapping[int, Times]) -> Verdict:
    """Return the fastest form that beats the default in every block by more than the noise."""
    default = times[0]
    least = {form: min([found.screening, *found.blocks]) for form, found in times.items()}
    wins = [form for form, found in times.items() if form and _wins(found, default)]
    best = min(wins, key=lambda form: min(times[form].blocks), default=0)
    others = [seconds for form, seconds in least.items() if form]
    measured = sum(found.screening < float("inf") for found in times.values())
    return Verdict(best, least[best], least[0], min(others, default=float("inf")), measured)


def _wins(form: Times, default: Times) -> bool:
    blocks = list(zip(form.blocks, default.blocks, strict=False))
    return len(blocks) == BLOCKS and all(mine < (1 - _LEAST_GAIN) * its for mine, its in blocks)
