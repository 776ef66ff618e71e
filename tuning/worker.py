"""The process that runs experiments, so that a kernel that crashes or hangs ends nothing else.

It reads questions and writes answers (`messages`): what it tries before it runs a candidate for the first time, and at
last what was measured or why nothing was. It needs the runtime only, not the compiler.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fusion.library import open_library
from fusion.runtime import Tensor
from fusion.system.deadline import Deadline
from fusion.tensors import allocate, as_numpy, as_tensor, numpy_dtype, tensor_bytes
from tuning.answering import answer_questions, begin_answering, say
from tuning.confine import limited_growth
from tuning.experiment import Experiment, LibraryCall, Storage, View, read_experiment
from tuning.measured_network import measured_network
from tuning.messages import Comparing, MeasuredNetwork, Trial, Trying
from tuning.rounds import Choice


def main() -> None:
    """Answer until there are no more lines."""
    begin_answering()
    answer_questions(lambda path, skipped: _measure(read_experiment(path), skipped))


def _measure(experiment: Experiment, skipped: Collection[Trial]) -> MeasuredNetwork:
    """Return the result of an experiment with all candidates but those to be skipped."""
    counts = experiment.candidate_counts()
    candidates = [[c for c in range(count) if Trial(kernel, c) not in skipped] for kernel, count in enumerate(counts)]
    bound = _bind(experiment)
    with limited_growth():
        return _run(experiment, bound, candidates)


def _run(experiment: Experiment, bound: Sequence[_BoundStep], candidates: Sequence[Sequence[int]]) -> MeasuredNetwork:
    taken = _try_all(bound, candidates)
    say(Comparing())

    def run(turns: Sequence[Choice], until: Deadline) -> Iterator[Sequence[float]]:
        for turn in turns:
            if until.left < 0:
                return
            yield [step.timed(candidate) for step, candidate in zip(taken, turn, strict=True)]

    return measured_network(experiment, [step.kernel for step in taken], run, candidates)


@dataclass(frozen=True)
class _BoundCall:
    """A function of a library, and the tensors that it is called with."""

    function: Callable[..., object]
    tensors: tuple[Tensor, ...]

    def __call__(self) -> None:
        self.function(*self.tensors)


@dataclass(frozen=True)
class _BoundCondition:
    """What must hold for a step to be taken: a bool of rank 0 is `value`."""

    tensor: Tensor
    value: bool

    def holds(self) -> bool:
        return bool(as_numpy(self.tensor)) is self.value


@dataclass(frozen=True)
class _BoundStep:
    """A step of an experiment with functions and tensors where that has symbols and numbers."""

    kernel: int
    candidates: tuple[tuple[_BoundCall, ...], ...]
    conditions: tuple[_BoundCondition, ...]

    def timed(self, candidate: int) -> float:
        """Run a candidate; returns the seconds."""
        calls = self.candidates[candidate]
        started = time.perf_counter()
        for call in calls:
            call()
        return time.perf_counter() - started


def _bind(experiment: Experiment) -> list[_BoundStep]:
    """Load the libraries and allocate the tensors of an experiment; returns its steps on them."""
    libraries = [open_library(Path(path)) for path in experiment.libraries]
    for library in libraries:
        library.use_threads(experiment.threads)
    tensors = _allocate(experiment)

    def bind(call: LibraryCall) -> _BoundCall:
        functions = next(lib.functions for lib in libraries if lib.functions.implements_function(call.symbol))
        return _BoundCall(functions.get_function(call.symbol), tuple(tensors[index] for index in call.arguments))

    return [
        _BoundStep(
            kernel=step.kernel,
            candidates=tuple(tuple(map(bind, candidate)) for candidate in step.candidates),
            conditions=tuple(_BoundCondition(tensors[c.tensor], c.value) for c in step.conditions),
        )
        for step in experiment.steps
    ]


def _try_all(steps: Sequence[_BoundStep], candidates: Sequence[Sequence[int]]) -> list[_BoundStep]:
    """Run every candidate once and return the steps that a run of the network takes."""
    taken, tried = [], set[Trial]()
    for step in steps:
        if not all(condition.holds() for condition in step.conditions):
            continue
        taken.append(step)
        # The first candidate last: it leaves what the next steps are to read.
        for candidate in reversed(candidates[step.kernel]):
            trial = Trial(step.kernel, candidate)
            if trial not in tried:
                say(Trying(trial))
            tried.add(trial)
            step.timed(candidate)
    return taken


def _allocate(experiment: Experiment) -> list[Tensor]:
    """Return the tensors of an experiment; those that share a storage lie in the same memory."""
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
