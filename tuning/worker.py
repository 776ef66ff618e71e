"""The process that runs experiments, so that a kernel that crashes or hangs ends nothing else.

Each line it reads has the path of an experiment and the forms to leave out, as JSON. It answers with lines of JSON:
{"trying": [kernel, form]} before it runs a form for the first time; at last {"verdicts": what `decide` says of each
kernel, "before": seconds, "after": seconds} of the network without and with that, or {"failed": why}. It needs the
runtime only, not the compiler.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fusion.library import open_library
from fusion.runtime import Tensor
from fusion.tensors import allocate, as_numpy, as_tensor, numpy_dtype, tensor_bytes
from tuning.decide import decide
from tuning.experiment import Call, Experiment, Step, Storage, View, read_experiment
from tuning.rounds import Rounds

_COMPARING = 0.85
"""Share of the time that forms are compared for; the rest is for the network with what was chosen."""

Form = tuple[int, int]
"""Kernel, form."""


def main() -> None:
    """Answer until there are no more lines."""
    for line in sys.stdin:
        path, *rest = json.loads(line)
        try:
            experiment = read_experiment(Path(path))
            _say(_run(experiment, {(kernel, form) for kernel, form in rest[0]}, _say))
        except Exception as error:  # whatever kernels and libraries raise
            _say({"failed": f"{type(error).__name__}: {error}"})


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


def _run(
    experiment: Experiment, skipped: Collection[Form], say: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Return the answer to an experiment, with all forms but those to be skipped."""
    steps = _Steps.make(experiment)
    counts = experiment.forms()
    forms = [[f for f in range(count) if (kernel, f) not in skipped] for kernel, count in enumerate(counts)]
    taken = steps.try_all(forms, say)
    kernels = [experiment.steps[step].kernel for step in taken]
    started = time.perf_counter()

    def rounds(seconds: float) -> Rounds:
        return Rounds(
            kernels,
            lambda step, form: steps.timed(taken[step], form),
            lambda: time.perf_counter() > started + seconds,
        )

    verdicts = [decide(times) for times in rounds(_COMPARING * experiment.seconds).compare(forms)]
    chosen = [verdict.form for verdict in verdicts]
    before, after = rounds(experiment.seconds).check([0] * len(counts), chosen)
    return {"verdicts": [asdict(verdict) for verdict in verdicts], "before": before, "after": after}


BoundCall = tuple[Callable[..., object], tuple[Tensor, ...]]


@dataclass
class _Steps:
    """The steps with functions and tensors."""

    steps: tuple[Step, ...]
    tensors: list[Tensor]
    bound: list[list[list[BoundCall]]]

    @staticmethod
    def make(experiment: Experiment) -> _Steps:
        libraries = [open_library(Path(path)) for path in experiment.libraries]
        for library in libraries:
            library.use_threads(experiment.threads)
        tensors = _allocate(experiment)

        def bind(call: Call) -> BoundCall:
            functions = next(lib.functions for lib in libraries if lib.functions.implements_function(call.symbol))
            return functions.get_function(call.symbol), tuple(tensors[index] for index in call.arguments)

        bound = [[[bind(call) for call in form] for form in step.forms] for step in experiment.steps]
        return _Steps(experiment.steps, tensors, bound)

    def try_all(self, forms: list[list[int]], say: Callable[[dict[str, Any]], None]) -> list[int]:
        """Run every form once and return the steps that a run of the network takes."""
        taken, tried = [], set[Form]()
        for index, step in enumerate(self.steps):
            if any(bool(as_numpy(self.tensors[tensor])) is not value for tensor, value in step.conditions):
                continue
            taken.append(index)
            # The first form last: it leaves what the next steps are to read.
            for form in reversed(forms[step.kernel]):
                if (step.kernel, form) not in tried:
                    say({"trying": [step.kernel, form]})
                tried.add((step.kernel, form))
                self.timed(index, form)
        return taken

    def timed(self, step: int, form: int) -> float:
        """Run a step; returns the seconds."""
        calls = self.bound[step][form]
        started = time.perf_counter()
        for function, tensors in calls:
            function(*tensors)
        return time.perf_counter() - started


def _allocate(experiment: Experiment) -> list[Tensor]:
    data = np.memmap(experiment.data, np.uint8, "r") if experiment.data else np.zeros(0, np.uint8)
    storages = [_fill(storage, data) for storage in experiment.storages]
    return [_view(view, storages) for view in experiment.tensors]


def _fill(storage: Storage, data: np.ndarray) -> np.ndarray:
    memory = allocate(storage.size)
    if storage.offset is None and storage.filler:
        memory[...] = storage.filler
    elif storage.offset is not None:
        memory[...] = data[storage.offset : storage.offset + storage.size]
    return memory


def _view(view: View, storages: list[np.ndarray]) -> Tensor:
    size = tensor_bytes(view.shape, view.dtype)
    return as_tensor(storages[view.storage][:size].view(numpy_dtype(view.dtype)).reshape(view.shape))


if __name__ == "__main__":
    main()
