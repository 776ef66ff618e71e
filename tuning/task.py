"""What is measured: a question about a kernel on this machine, which other models with the same kernel ask too."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tuning.canonical import Fields, canonical

KERNEL, CHAIN, ALONE, PLACEMENT, NETWORK = "kernel", "chain", "alone", "placement", "network"
"""Which point of its template's space is fastest in a network; whether several anchors are faster in one kernel; what
points take without a network, which answers nothing, and is learned from; whether a model is faster with the regions of
a library, the family; what a network takes with given points of its kernels."""
Tensors = tuple[tuple[str, tuple[int, ...]], ...]
"""Dtypes and shapes."""


@dataclass(frozen=True)
class Environment:
    """Where and by what measurements were made. Those of others say nothing here.

    Attributes:
        target: The target as JSON text of TVM.
        cpu: What kind of CPU it is, and how many there are.
        threads: Of a kernel.
        versions: Of what makes the code of kernels, by name.
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
    """A question that measurements answer.

    Attributes:
        kind: `KERNEL`, `CHAIN`, `ALONE`, `PLACEMENT` or `NETWORK`.
        family: The template that takes the kernel: tasks of one family are alike.
        structure: `structure_of` the kernel before it has loops.
        tensors: Dtype and shape of each parameter, for people and cost models: the structure tells them too.
        environment: Where it is asked.
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
