"""What a worker measures, as plain data: the calls of a network, of which some kernels have several forms."""

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
class Call:
    """A call of a function of the library with some of the tensors."""

    symbol: str
    arguments: tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """A part of the network that has one form or several, each of which makes the same results.

    Attributes:
        kernel: Which of the kernels it is a use of; the same form is chosen for all uses.
        forms: The calls of each form; the first is what the network has unless another is faster.
        conditions: (tensor, bool) that must hold for the step to be taken.
    """

    kernel: int
    forms: tuple[tuple[Call, ...], ...]
    conditions: tuple[tuple[int, bool], ...] = ()


@dataclass(frozen=True)
class Experiment:
    """A network to be run.

    Attributes:
        libraries: Paths of the shared libraries with all functions.
        data: Path of the file with the contents of storages; "" where none has any.
        steps: In the order of execution.
        threads: Of a kernel.
        seconds: To measure for at most.
    """

    libraries: tuple[str, ...]
    data: str
    storages: tuple[Storage, ...]
    tensors: tuple[View, ...]
    steps: tuple[Step, ...]
    threads: int
    seconds: float

    def forms(self) -> list[int]:
        """Return how many forms each kernel has."""
        counts = [1] * (1 + max((step.kernel for step in self.steps), default=-1))
        for step in self.steps:
            counts[step.kernel] = len(step.forms)
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
    )


def _step(kernel: int, forms: list[list[dict[str, Any]]], conditions: list[list[Any]]) -> Step:
    calls = tuple(tuple(Call(call["symbol"], tuple(call["arguments"])) for call in form) for form in forms)
    return Step(kernel, calls, tuple((int(tensor), bool(value)) for tensor, value in conditions))
