"""What a template answers: a scheduled kernel, or the reason why it is not its job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tvm import tirx

from fusion.context import Machine


@dataclass(frozen=True)
class Scheduled:
    """A PrimFunc with its final loops.

    Attributes:
        func: Same parameters as the input.
        template: Name of the template that made it.
        tile: The loop structure in words, for `explain`.
        note: Which better templates did not take the function, and why; empty where the first one did.
    """

    func: tirx.PrimFunc
    template: str
    tile: str
    note: str = ""


@dataclass(frozen=True)
class Declined:
    """Why a template does not apply."""

    reason: str


class Template(Protocol):
    """Makes fast loops of the PrimFuncs it recognises and declines all others."""

    @property
    def name(self) -> str:
        """Name for reports."""
        ...

    def apply(self, func: tirx.PrimFunc, machine: Machine, threads: int) -> Scheduled | Declined:
        """Return the scheduled function, or why not. Never raises for a valid PrimFunc."""
        ...


class NotRecognized(Exception):
    """Raised inside a template where the PrimFunc leaves its form; becomes `Declined`, never reaches a user."""
