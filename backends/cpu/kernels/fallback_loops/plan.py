"""Plain loops leave nothing open."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx

from backends.cpu.machine import Machine
from backends.tensorir.space import Space


@dataclass(frozen=True)
class PlainLoops:
    """The one point.

    Attributes:
        threads: 1 leaves all loops serial.
        cycles: There is no estimate.
    """

    threads: int
    cycles: float = 0.0

    def axes(self) -> dict[str, int]:
        return {"threads": self.threads}

    def __str__(self) -> str:
        return f"{self.threads} threads"


def plain_space(func: tirx.PrimFunc, machine: Machine, threads: int) -> Space[PlainLoops]:
    """Return the one point."""
    point = PlainLoops(threads)
    return Space(point, lambda: iter((point,)))
