"""Compares runs of the same by turns: what they take, and what they return."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

import numpy as np

from tuning.answering import say
from tuning.messages import Comparing, Trial, Trying
from tuning.rounds import BLOCK_RUNS, BLOCKS, Times

_LEAST_S = 0.02
"""That a block of runs of a module takes: of fewer runs the least is noise."""
_FAR_BEHIND = 1.2
"""Times as long as the first: nobody asks by how much."""


def agrees(ours: np.ndarray, theirs: np.ndarray, tolerance: float) -> bool:
    """Return whether results of a library are those of our kernels; where ours are no numbers, theirs may be any."""
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        return False
    if ours.dtype.kind in "biu":
        return bool(np.array_equal(ours, theirs))
    known = np.isfinite(ours)
    mine, its = ours[known].astype(np.float64), theirs[known].astype(np.float64)
    return bool(np.all(np.abs(mine - its) <= tolerance * np.max(np.abs(mine), initial=0.0)))


def compare(runs: Mapping[int, Callable[[], object]], seconds: float, kernel: int = 0) -> dict[int, Times]:
    """Return the least time of each candidate for a kernel in blocks of runs, one candidate after the other in each; of
    one block where all others are far behind the first, number 0, in that."""
    trials = {place: Trial(kernel, place) for place in runs}
    first = {place: min(_timed(run, trials[place]), _timed(run, trials[place])) for place, run in runs.items()}
    wanted = max(BLOCK_RUNS, math.ceil(_LEAST_S / min(first.values())))
    count = max(1, min(wanted, int(seconds / BLOCKS / sum(first.values()))))
    times = {place: Times(took) for place, took in first.items()}
    say(Comparing())
    for _ in range(BLOCKS):
        least = dict.fromkeys(runs, math.inf)
        for _ in range(count):
            for place, run in runs.items():
                least[place] = min(least[place], _timed(run, trials[place] if count == 1 else None))
        for place, took in least.items():
            times[place].blocks.append(took)
        if all(took > _FAR_BEHIND * least[0] for place, took in least.items() if place):
            break
    return times


def _timed(run: Callable[[], object], trial: Trial | None = None) -> float:
    """Return the seconds of a run; of one that may be long it is said first whose it is, as who waits gives up."""
    if trial is not None:
        say(Trying(trial))
    started = time.perf_counter()
    run()
    return time.perf_counter() - started
