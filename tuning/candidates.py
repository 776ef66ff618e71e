"""Kernels with the loops of points of their spaces: what is measured in the place of each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import tvm_ffi
from tvm import tirx

from backends.tensorir.result import Kernel, Scheduled
from backends.tensorir.space import Point
from tuning.search import key_of

Schedule = Callable[[tirx.PrimFunc, Point], Scheduled]
Emit = Callable[[Point], Scheduled]


@dataclass(frozen=True)
class Candidate:
    """A kernel with the loops of one point of its space, under a name of its own; `point` is None for the default."""

    symbol: str
    made: Scheduled
    point: Point | None = None


@dataclass
class KernelCandidates:
    """The candidates for one kernel of a network.

    Attributes:
        kernel: At its default.
        base: What others are compared with: the default; of a kernel that is not to be measured, what it runs as.
    """

    kernel: Kernel
    base: Candidate
    _made: dict[str, Candidate] = field(default_factory=dict, init=False)

    @staticmethod
    def of(kernel: Kernel, symbol: str) -> KernelCandidates:
        """Return a kernel with its default alone."""
        return KernelCandidates(kernel, Candidate(symbol, kernel.made))

    @staticmethod
    def running_at(point: Point, kernel: Kernel, symbol: str, schedule: Schedule) -> KernelCandidates:
        """Return a kernel that is not to be measured, at the point at which it runs."""
        return KernelCandidates(kernel, Candidate(symbol, schedule(kernel.source, point), point))

    def at(self, point: Point, emit: Emit) -> Candidate | None:
        """Return the candidate at `point`, whose loops `emit` writes; None where the template does not take it, or
        another one has its loops."""
        key = key_of(point)
        if key not in self._made:
            made = emit(point)
            others = (self.base, *self._made.values())
            if made.note or any(tvm_ffi.structural_equal(made.func, other.made.func) for other in others):
                return None
            self._made[key] = Candidate(f"{self.base.symbol}_{len(self._made) + 1}", made, point)
        return self._made[key]
