"""The process that times saved modules of one model, so that a library that crashes or hangs ends nothing
else.

It speaks as `tuning.worker` does, of one kernel, the model, whose candidates are the modules.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import numpy as np

from fusion.compiled_module import CompiledModule
from fusion.load_saved import load
from fusion.module.random_inputs import random_inputs
from fusion.placing.experiment import read_experiment
from tuning.answering import answer_questions, begin_answering, say
from tuning.decide import decide
from tuning.messages import Comparing, MeasuredNetwork, Trial, Trying
from tuning.rounds import BLOCK_RUNS, BLOCKS, Times

_LEAST_S = 0.02
"""That a block of runs of a module takes: of fewer runs the least is noise."""
_FAR_BEHIND = 1.2
"""Times as long as the first: nobody asks by how much."""

Run = Callable[[], Sequence[np.ndarray]]


def main() -> None:
    """Answer until there are no more lines."""
    begin_answering()
    answer_questions(_measure)


def _measure(path: Path, skipped: Collection[Trial]) -> MeasuredNetwork:
    """Return what the modules of an experiment take; those that fail, or disagree with the first, are none of the
    times."""
    experiment = read_experiment(path)
    runs: dict[int, Run] = {}
    expected: Sequence[np.ndarray] = ()
    for place, module in enumerate(experiment.modules):
        if Trial(0, place) in skipped:
            continue
        say(Trying(Trial(0, place)))
        try:
            run = _opened(load(module, verify=False))
            found = run()
        except Exception:
            if not place:
                raise
            continue
        expected = expected if place else found
        if all(agrees(ours, theirs, experiment.tolerance) for ours, theirs in zip(expected, found, strict=True)):
            runs[place] = run
    times = _compare(runs, experiment.seconds)
    decision = decide(times, 1)
    return MeasuredNetwork((decision,), decision.default_s, decision.seconds)


def _opened(module: CompiledModule) -> Run:
    arrays = list(random_inputs(module.inputs).values())
    return lambda: module(*arrays)


def agrees(ours: np.ndarray, theirs: np.ndarray, tolerance: float) -> bool:
    """Return whether results of a library are those of our kernels; where ours are no numbers, theirs may be any."""
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        return False
    if ours.dtype.kind in "biu":
        return bool(np.array_equal(ours, theirs))
    known = np.isfinite(ours)
    mine, its = ours[known].astype(np.float64), theirs[known].astype(np.float64)
    return bool(np.all(np.abs(mine - its) <= tolerance * np.max(np.abs(mine), initial=0.0)))


def _compare(runs: dict[int, Run], seconds: float) -> dict[int, Times]:
    """Return the least time of each module in blocks of runs, one module after the other in each; of one block where
    all others are far behind the first in that."""
    first = {place: min(_timed(run, place), _timed(run, place)) for place, run in runs.items()}
    wanted = max(BLOCK_RUNS, math.ceil(_LEAST_S / min(first.values())))
    count = max(1, min(wanted, int(seconds / BLOCKS / sum(first.values()))))
    times = {place: Times(took) for place, took in first.items()}
    say(Comparing())
    for _ in range(BLOCKS):
        least = dict.fromkeys(runs, math.inf)
        for _ in range(count):
            for place, run in runs.items():
                least[place] = min(least[place], _timed(run, place if count == 1 else None))
        for place, took in least.items():
            times[place].blocks.append(took)
        if all(took > _FAR_BEHIND * least[0] for place, took in least.items() if place):
            break
    return times


def _timed(run: Run, place: int | None = None) -> float:
    """Return the seconds of a run; of one that may be long it is said first whose it is, as who waits gives up."""
    if place is not None:
        say(Trying(Trial(0, place)))
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
