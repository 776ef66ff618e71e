"""The process that times saved modules of one model, so that a library that crashes or hangs ends nothing
else.

It speaks as `tuning.worker` does, of one kernel, the model, whose candidates are the modules.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import numpy as np

from fusion.compiled_module import CompiledModule
from fusion.load_saved import load
from fusion.module.random_inputs import random_inputs
from fusion.placing.compare import compare, failed_while_measured, why_wrong
from fusion.placing.experiment import KernelExperiment, read_experiment
from fusion.placing.measure_kernels import measure_kernels
from tuning.answering import answer_questions, begin_answering, say
from tuning.decide import decide
from tuning.messages import MeasuredNetwork, Trial, Trying

Run = Callable[[], Sequence[np.ndarray]]


def main() -> None:
    """Answer until there are no more lines."""
    begin_answering()
    answer_questions(_measure)


def _measure(path: Path, skipped: Collection[Trial]) -> MeasuredNetwork:
    """Return what the modules of an experiment take; those that fail, or disagree with the first, are none of the
    times."""
    experiment = read_experiment(path)
    if isinstance(experiment, KernelExperiment):
        return measure_kernels(experiment, skipped)
    runs: dict[int, Run] = {}
    expected: Sequence[np.ndarray] = ()
    reasons: dict[Trial, str] = {}
    for place, module in enumerate(experiment.modules):
        if Trial(0, place) in skipped:
            continue
        say(Trying(Trial(0, place)))
        try:
            run = _opened(load(module, verify=False))
            found = run()
        except Exception as error:
            if not place:
                raise
            reasons[Trial(0, place)] = failed_while_measured(error)
            continue
        expected = expected if place else found
        if wrong := why_wrong(expected, found, experiment.tolerance):
            reasons[Trial(0, place)] = wrong
        else:
            runs[place] = run
    times = compare(runs, experiment.seconds)
    decision = decide(times, 1)
    return MeasuredNetwork((decision,), decision.default_s, decision.seconds, tuple(reasons.items()))


def _opened(module: CompiledModule) -> Run:
    arrays = list(random_inputs(module.inputs).values())
    return lambda: module(*arrays)


if __name__ == "__main__":
    main()
