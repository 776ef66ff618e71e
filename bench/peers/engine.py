"""What an engine offers to the protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

Arrays = dict[str, np.ndarray]
Runner = Callable[[Arrays], Arrays]


@dataclass(frozen=True)
class Compiled:
    """A module of ours that was compiled and saved before.

    Attributes:
        path: The saved file, or None where there is no linker to save it with.
        seconds: What compiling it took.
    """

    path: Path | None
    seconds: float


@dataclass(frozen=True)
class Job:
    """One model to run.

    Attributes:
        path: ONNX file.
        shapes: Input name to concrete shape.
        threads: How many threads every engine gets.
        zoo_name: The model's name in the zoo, or empty; for engines that cannot read ONNX.
        compiled: Ours, where it need not be compiled again.
        precision: "fp32", or "bf16" for the engines that have it: fusion and OpenVINO.
        effort: Of fusion.
        bounds: The sizes of open dimensions by their names, for fusion.
        backends: Who may run parts, for fusion; None for its default.
    """

    path: Path
    shapes: Mapping[str, tuple[int, ...]]
    threads: int
    zoo_name: str = ""
    compiled: Compiled | None = None
    precision: str = "fp32"
    effort: str = "fast"
    bounds: Mapping[str, range] = field(default_factory=dict)
    backends: tuple[str, ...] | None = None


class Engine(Protocol):
    """One inference engine at its best public settings."""

    def load(self, job: Job, folder: Path) -> Runner:
        """Return a function from named inputs to named outputs."""


@runtime_checkable
class AheadOfTime(Engine, Protocol):
    """An engine that compiles in one process and runs in another."""

    def build(self, job: Job, folder: Path) -> bool:
        """Compile `job` and write what `load` needs into `folder`; return False where `load` must compile it again."""


@runtime_checkable
class AnyShape(Engine, Protocol):
    """An engine that runs one model with inputs of any shape that the model allows."""

    def open(self, job: Job) -> Runner:
        """Return a function as `load` does. Inputs that the job has no shape of keep the dimensions that the model
        leaves open."""


@runtime_checkable
class Specializing(Engine, Protocol):
    """An engine that compiles a form of the model for each shape, and can tell how many it has."""

    def forms(self) -> int:
        """Return how many forms there are of the model opened last."""

    def compilations(self) -> int:
        """Return how many calls of the model opened last have compiled, each for as long as that took."""

    def save(self, folder: Path) -> bool:
        """Write what `load` needs of the model opened last into `folder`; return False where that cannot be."""


@dataclass(frozen=True)
class Kernels:
    """The kernels of a run.

    Attributes:
        calls: How many are called.
        seconds: Of all of them together, without the calls around them.
    """

    calls: int
    seconds: float


@runtime_checkable
class Profiled(Engine, Protocol):
    """An engine that can tell the time its kernels take from that of the calls around them."""

    def kernels(self, inputs: Arrays, seconds: float) -> Kernels:
        """Return the kernels of a run of the model loaded last, measured for about `seconds`."""


class UnsupportedModelError(Exception):
    """An engine cannot run this model at all; the text says why."""
