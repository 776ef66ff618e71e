"""The keys of measurements: a kernel, or what else is measured, on one kind of machine."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tuning.canonical import Fields, canonical

KERNEL, CHAIN, LAYOUT = "kernel", "chain", "layout"
ALONE, PLACEMENT, NETWORK = "alone", "placement", "network"
"""Kinds of tasks: the fastest point of a kernel within a network; whether several anchors are faster in one kernel; in
which layout a graph is; the times of points without a network, for cost models; whether a model is faster with regions
on a library (the family); the time of a network with given points."""
Tensors = tuple[tuple[str, tuple[int, ...]], ...]
"""The dtype and shape of each parameter."""


@dataclass(frozen=True)
class Environment:
    """The machine and the compiler of measurements. Those of another environment do not count.

    Attributes:
        target: The target, as TVM's JSON text.
        cpu: The model of the CPU, and the number of CPUs.
        threads: The threads of a kernel.
        versions: The versions of what compiles kernels, by name.
    """

    target: str
    cpu: str
    threads: int
    versions: Mapping[str, str]

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"target": self.target, "cpu": self.cpu, "threads": self.threads, "versions": dict(self.versions)}

    @staticmethod
    def from_data(fields: Fields) -> Environment:
        """Return what `as_data` returned.

        Raises:
            ValueError: It did not.
        """
        return Environment(fields.text("target"), fields.text("cpu"), fields.count("threads"), fields.texts("versions"))


@dataclass(frozen=True)
class TuningTask:
    """What was measured; other models with the same kernel have the same task.

    Attributes:
        kind: `KERNEL`, `CHAIN`, `LAYOUT`, `ALONE`, `PLACEMENT` or `NETWORK`.
        family: The template of the kernel; cost models learn from tasks of one family.
        structure: `structure_of` the unscheduled kernel.
        tensors: The dtype and shape of each parameter, for people and cost models; the structure implies them.
        environment: The machine and the compiler.
    """

    kind: str
    family: str
    structure: str
    tensors: Tensors
    environment: Environment

    @cached_property
    def key(self) -> str:
        """The sha256 of its canonical JSON."""
        return hashlib.sha256(canonical(self.as_data()).encode()).hexdigest()

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data."""
        tensors = [[dtype, list(shape)] for dtype, shape in self.tensors]
        what = {"kind": self.kind, "family": self.family, "structure": self.structure, "tensors": tensors}
        return {**what, "environment": self.environment.as_data()}

    @staticmethod
    def from_data(fields: Fields) -> TuningTask:
        """Return what `as_data` returned.

        Raises:
            ValueError: It did not.
        """
        return TuningTask(
            kind=fields.text("kind"),
            family=fields.text("family"),
            structure=fields.text("structure"),
            tensors=fields.tensors("tensors"),
            environment=Environment.from_data(fields.fields("environment")),
        )
