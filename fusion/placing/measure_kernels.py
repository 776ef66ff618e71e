"""Times kernels of a saved module one by one beside libraries, in the process that measures placements."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import numpy as np

from backends.library_subgraph import open_subgraph
from backends.subgraphs import subgraph_key
from fusion.declined import Declined
from fusion.load_saved import load
from fusion.module.program import KernelProgram
from fusion.module.random_inputs import random_inputs
from fusion.placing.compare import compare, failed_while_measured, why_wrong
from fusion.placing.experiment import AloneKernel, KernelExperiment, LibraryPart
from fusion.report.profile import BoundCall, bind_calls
from fusion.tensors import as_numpy, as_tensor
from tuning.answering import say
from tuning.decide import Decision, decide
from tuning.messages import MeasuredNetwork, Trial, Trying

_SECONDS = 0.3
"""For a kernel and all libraries that run it."""


def measure_kernels(experiment: KernelExperiment, skipped: Collection[Trial]) -> MeasuredNetwork:
    """Return what kernels take, and what libraries do in their place: the first ones, as many as there is time for.
    Parts that fail, or disagree with the kernel, are none of the times, and so are all of a library of which one is
    `skipped`."""
    ends = time.monotonic() + experiment.seconds
    left_out = {trial.candidate for trial in skipped}
    module = load(experiment.module, verify=False)
    arrays = list(random_inputs(module.inputs).values())
    results = module(*arrays)
    (form,) = module.specializations
    assert isinstance(form.program, KernelProgram)
    calls = bind_calls(form.program, form.program.arenas.take(), arrays)
    decisions: list[Decision] = []
    reasons: dict[Trial, str] = {}
    for place, kernel in enumerate(experiment.kernels):
        if time.monotonic() > ends:
            break
        runs = {0: _run_of([calls[each] for each in kernel.calls])}
        for part in kernel.parts:
            if part.candidate not in left_out:
                trial = Trial(place, part.candidate)
                say(Trying(trial))
                try:
                    runs[part.candidate] = _opened(part, kernel, arrays, results, experiment)
                except Declined as reason:
                    reasons[trial] = str(reason)
        decisions.append(decide(compare(runs, _SECONDS, place), 1))
    return MeasuredNetwork(tuple(decisions), 0.0, 0.0, tuple(reasons.items()))


def _run_of(calls: Sequence[BoundCall]) -> Callable[[], object]:
    return lambda: [call() for call in calls]


def _opened(
    part: LibraryPart,
    kernel: AloneKernel,
    arrays: Sequence[np.ndarray],
    results: Sequence[np.ndarray],
    experiment: KernelExperiment,
) -> Callable[[], object]:
    """Return the call of a part, as compiled code makes it.

    Raises:
        Declined: It fails, or is wrong.
    """
    first, count = kernel.inputs
    tensors = [as_tensor(array) for array in arrays[first : first + count]]
    first, count = kernel.outputs
    try:
        data = Path(part.path).read_bytes()
        key = subgraph_key(part.library, data, experiment.threads)
        opened = open_subgraph(part.library, key, data, experiment.threads)
        found = [as_numpy(tensor) for tensor in opened.call(tensors)]
    except Exception as error:  # whatever a library raises
        raise Declined(failed_while_measured(error)) from error
    if wrong := why_wrong(results[first : first + count], found, experiment.tolerance):
        raise Declined(wrong)
    return lambda: opened.call(tensors)
