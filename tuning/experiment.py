"""What a worker measures, as plain data: the calls of a network, of which some kernels have several candidates."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Storage:
    """Memory.

    Attributes:
        size: In bytes.
        offset: Where in the file of data it begins; None where all its bytes are `filler`.
    """

    size: int
    offset: int | None = None
    filler: int = 0


@dataclass(frozen=True)
class View:
    """A tensor at the beginning of a storage."""

    storage: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class LibraryCall:
    """A call of a function of the library with some of the tensors."""

    symbol: str
    arguments: tuple[int, ...]


@dataclass(frozen=True)
class StepCondition:
    """What must hold for a step to be taken: a tensor, a bool of rank 0, is `value`."""

    tensor: int
    value: bool


@dataclass(frozen=True)
class Step:
    """A part of the network for which there are one or several candidates, each of which makes the same results.

    Attributes:
        kernel: Which of the kernels it is a use of; the same candidate is chosen for all uses.
        candidates: The calls of each candidate; the first is what the network has unless another is faster.
        conditions: All of them hold where the step is taken.
    """

    kernel: int
    candidates: tuple[tuple[LibraryCall, ...], ...]
    conditions: tuple[StepCondition, ...] = ()


@dataclass(frozen=True)
class Experiment:
    """A network to be run.

    Attributes:
        libraries: Paths of the shared libraries with all functions.
        data: Path of the file with the contents of storages; "" where none has any.
        steps: In the order of execution.
        threads: Of a kernel.
        seconds: To measure for at most.
        evenly: As in `Rounds`.
    """

    libraries: tuple[str, ...]
    data: str
    storages: tuple[Storage, ...]
    tensors: tuple[View, ...]
    steps: tuple[Step, ...]
    threads: int
    seconds: float
    evenly: int = 0

    def candidate_counts(self) -> list[int]:
        """Return how many candidates there are for each kernel."""
        counts = [1] * (1 + max((step.kernel for step in self.steps), default=-1))
        for step in self.steps:
            counts[step.kernel] = len(step.candidates)
        return counts

    def write(self, path: Path) -> None:
        """Write all but the data to `path`."""
        path.write_text(json.dumps(asdict(self)))


def read_experiment(path: Path) -> Experiment:
    """Return what `Experiment.write` wrote."""
    fields: dict[str, Any] = json.loads(path.read_text())
    return Experiment(
        libraries=tuple(fields["libraries"]),
        data=fields["data"],
        storages=tuple(Storage(**storage) for storage in fields["storages"]),
        tensors=tuple(View(view["storage"], tuple(view["shape"]), view["dtype"]) for view in fields["tensors"]),
        steps=tuple(_step(**step) for step in fields["steps"]),
        threads=fields["threads"],
        seconds=fields["seconds"],
        evenly=fields["evenly"],
    )


def _step(kernel: int, candidates: list[list[dict[str, Any]]], conditions: list[dict[str, Any]]) -> Step:
    return Step(
        kernel,
        tuple(tuple(_call(**call) for call in candidate) for candidate in candidates),
        tuple(StepCondition(**condition) for condition in conditions),
    )


def _call(symbol: str, arguments: list[int]) -> LibraryCall:
    return LibraryCall(symbol, tuple(arguments))
