"""What a template without anchors is asked."""

from __future__ import annotations

from typing import Protocol

from tvm import tirx

from backends.cpu.machine import Machine
from backends.tensorir.result import Declined, Scheduled


class Template(Protocol):
    """Makes fast loops of the PrimFuncs it recognises and declines all others."""

    @property
    def name(self) -> str:
        """Name for reports."""
        ...

    def apply(self, func: tirx.PrimFunc, machine: Machine, threads: int) -> Scheduled | Declined:
        """Return the scheduled function, or why not. Never raises for a valid PrimFunc."""
        ...
