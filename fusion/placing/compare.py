"""Compares runs of the same by turns: what they take, and what they return."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fusion.errors import ExecutionError
from tuning.answering import say
from tuning.messages import Comparing, Trial, Trying
from tuning.rounds import BLOCK_RUNS, BLOCKS, Times

_LEAST_S = 0.02
"""That a block of runs of a module takes: of fewer runs the least is noise."""
_TURN_S = 0.002
"""That a turn takes at least: behind one that slept or was long, the first runs of a short one are of a slow clock, of
caches without it and of threads asleep. One of 7 us took 110 us behind each sleep of 50 ms."""
_TURN_RUNS = 2
"""Of a turn, where there is time: the least counts, which is not the first."""
_FAR_BEHIND = 1.2
"""Times as long as the first: nobody asks by how much."""
_HOPELESS = 10.0
"""Times as long as the first: it takes no turn in blocks, of which it would have nearly all the time."""


def failed_while_measured(error: Exception) -> str:
    """Return the sentence of a library that raised an error."""
    why = error.why if isinstance(error, ExecutionError) and error.why else f"{type(error).__name__}: {error}"
    return f"it failed while it was measured: {why}"


def why_wrong(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray], tolerance: float) -> str:
    """Return what is wrong with results of a library that is to compute those of our kernels, the worst of them first;
    "" where nothing is. Where ours are no numbers, theirs may be any."""
    wrong = [_difference(mine, its, tolerance) for mine, its in zip(ours, theirs, strict=False)]
    if len(ours) != len(theirs):
        wrong.append((math.inf, f"{len(theirs)} results in place of {len(ours)}"))
    _, worst = max(wrong, key=lambda each: each[0], default=(0.0, ""))
    return f"its results were wrong while it was measured: {worst}" if worst else ""


def _difference(ours: np.ndarray, theirs: np.ndarray, tolerance: float) -> tuple[float, str]:
    """Return how far a result is from ours, as a share of the largest of ours, and that in words; "" where it is not
    farther than it may be."""
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        shapes = (f"{each.dtype}[{','.join(map(str, each.shape))}]" for each in (theirs, ours))
        return math.inf, " in place of ".join(shapes)
    if ours.dtype.kind in "biu":
        count = int(np.count_nonzero(ours != theirs))
        return float(count), f"{count} of {ours.size} elements, which are to be equal" if count else ""
    known = np.isfinite(ours)
    mine, its = ours[known].astype(np.float64), theirs[known].astype(np.float64)
    largest = float(np.max(np.abs(mine), initial=0.0))
    error = float(np.max(np.abs(mine - its), initial=0.0))
    if error <= tolerance * largest:
        return 0.0, ""
    if math.isnan(error):
        return math.inf, "NaN in place of numbers"
    share = error / largest if largest else math.inf
    text = f"an error of {error:.2g} where the largest of ours is {largest:.2g}, of which {tolerance:g} is allowed"
    return share, text


def compare(runs: Mapping[int, Callable[[], object]], seconds: float, kernel: int = 0) -> dict[int, Times]:
    """Return the least time of each candidate for a kernel in blocks of runs, in each of which they take turns; of one
    block where all others are far behind the first, number 0, in that. What those that are hopeless took
    before is their only block."""
    trials = {place: Trial(kernel, place) for place in runs}
    first = {place: _turn(run, _TURN_RUNS, trials[place]) for place, run in runs.items()}
    left = {place: each for place, each in first.items() if each <= _HOPELESS * first[0]}
    least = min(left.values())
    took = sum(max(_TURN_S, _TURN_RUNS * each) for each in left.values())
    wanted = max(BLOCK_RUNS / _TURN_RUNS, _LEAST_S / max(_TURN_S, _TURN_RUNS * least))
    turns = max(1, min(math.ceil(wanted), int(seconds / BLOCKS / took)))
    count = _TURN_RUNS if BLOCKS * took <= seconds else 1
    times = {place: Times(each, [] if place in left else [each]) for place, each in first.items()}
    say(Comparing())
    for _ in range(BLOCKS):
        block = dict.fromkeys(left, math.inf)
        for _ in range(turns):
            for place in left:
                block[place] = min(block[place], _turn(runs[place], count, trials[place] if turns == 1 else None))
        for place, each in block.items():
            times[place].blocks.append(each)
        if all(found > _FAR_BEHIND * block[0] for place, found in block.items() if place):
            break
    return times


def _turn(run: Callable[[], object], count: int, trial: Trial | None = None) -> float:
    """Return the least seconds of `count` runs in a row, and of more that fit into the time of a turn; of one that may
    be long it is said before each whose it is, as who waits gives up."""
    ends, least = time.perf_counter() + _TURN_S, math.inf
    while count > 0 or time.perf_counter() < ends:
        if trial is not None and count > 0:
            say(Trying(trial))
        started = time.perf_counter()
        run()
        least, count = min(least, time.perf_counter() - started), count - 1
    return least
