"""An experiment as the bytes that `measure.c` reads, and the numbers by which its calls are ordered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from fusion.runtime import tvm_ffi
from tuning.experiment import Experiment, LibraryCall, Storage, View
from tuning.messages import Trial

_HEADER = 6
_NO_OFFSET = -1
_PREFIX = "__tvm_ffi_"
"""Of the symbols of functions."""
Entries = list[int]
"""Of an order: numbers of calls, and of tensors to be looked at, which are below 0."""


@dataclass(frozen=True)
class ExperimentPlan:
    """The calls of an experiment by their numbers, in the order of `calls`.

    Attributes:
        experiment: What is measured.
        calls: All of them, of each step and candidate.
        first: The number of the first call of each step's candidate; its others are behind it.
    """

    experiment: Experiment
    calls: Sequence[LibraryCall]
    first: Mapping[tuple[int, int], int]

    @staticmethod
    def of(experiment: Experiment) -> ExperimentPlan:
        """Return the plan of `experiment`."""
        calls, first = list[LibraryCall](), dict[tuple[int, int], int]()
        for place, step in enumerate(experiment.steps):
            for number, candidate in enumerate(step.candidates):
                first[place, number] = len(calls)
                calls += candidate
        return ExperimentPlan(experiment, calls, first)

    def entries(self, step: int, candidate: int) -> Entries:
        """Return the calls of a step's candidate."""
        start = self.first[step, candidate]
        return list(range(start, start + len(self.experiment.steps[step].candidates[candidate])))

    def looks(self, step: int) -> Entries:
        """Return what is to be looked at to know whether a run takes a step."""
        return [-1 - condition.tensor for condition in self.experiment.steps[step].conditions]

    def is_taken(self, step: int, looks: Sequence[int]) -> bool:
        """Return whether a run takes a step, given what was seen."""
        conditions = self.experiment.steps[step].conditions
        return all(bool(look) is each.value for look, each in zip(looks, conditions, strict=True))

    def trial(self, entry: int) -> Trial:
        """Return the candidate that a call belongs to."""
        (step, candidate), _ = max(
            (found for found in self.first.items() if found[1] <= entry), key=lambda found: found[1]
        )
        return Trial(self.experiment.steps[step].kernel, candidate)

    def as_bytes(self, data: str, libraries: Sequence[str]) -> bytes:
        """Return what the server reads.

        Args:
            data: The name there of the file with the contents of storages; "" where none has any.
            libraries: Names there, of files that are loaded.
        """
        made = self.experiment
        numbers = list(chain(
            chain.from_iterable(map(_storage, made.storages)),
            chain.from_iterable(map(_tensor, made.tensors)),
            chain.from_iterable(map(_call, self.calls)),
        ))  # fmt: skip
        counts = len(made.storages), len(made.tensors), len(self.calls), len(libraries)
        header = [made.threads, *counts, 8 * (_HEADER + len(numbers))]
        texts = [data, *libraries, *(f"{_PREFIX}{call.symbol}" for call in self.calls)]
        return np.array([*header, *numbers], "<i8").tobytes() + "".join(f"{text}\0" for text in texts).encode()


def _storage(storage: Storage) -> Iterator[int]:
    yield from (storage.size, _NO_OFFSET if storage.offset is None else storage.offset, storage.filler)


def _tensor(view: View) -> Iterator[int]:
    dtype = tvm_ffi.dtype(view.dtype)
    yield from (view.storage, dtype.type_code, dtype.bits, len(view.shape), *view.shape)


def _call(call: LibraryCall) -> Iterator[int]:
    yield from (len(call.arguments), *call.arguments)
