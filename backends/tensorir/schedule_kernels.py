"""Give every PrimFunc of a module its loops."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import tvm
from tvm import tirx

from backends.tensorir.repack_weights import repack_weights
from backends.tensorir.result import Kernel, Scheduled
from backends.tensorir.space import Point
from fusion.abandon import checkpoint

Schedule = Callable[[tirx.PrimFunc, "Point | None"], Scheduled]
"""(kernel, point or None for the default) -> the kernel with its loops."""

SOURCE = "fusion.source"
"""Attribute of a kernel with loops: the sha256 of the PrimFunc that they were made of."""


@dataclass(frozen=True)
class ScheduleKernels:
    """Unscheduled PrimFuncs -> vectorised, parallel ones; `scheduled` keeps both forms of each by name.

    Attributes:
        schedule: Gives one kernel its loops.
        points: Of the kernels, by name, that get another point of their space than its default.
        name_sources: Whether each kernel that can be named says what it was made of, as `SOURCE`.
    """

    schedule: Schedule
    points: Mapping[str, Point] = field(default_factory=dict)
    scheduled: dict[str, Kernel] = field(default_factory=dict)
    name_sources: bool = False
    name: str = "schedule_kernels"

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        result, check = mod.clone(), checkpoint()
        repacks = {}
        for symbol, func in mod.functions.items():
            check()
            if isinstance(func, tirx.PrimFunc):
                made = self.schedule(func, self.points.get(symbol.name_hint))
                self.scheduled[symbol.name_hint] = Kernel(func, made)
                result[symbol] = _with_source(made.func, func) if self.name_sources else made.func
                if made.repack:
                    repacks[symbol] = made.repack
        return repack_weights(result, repacks)

    def notes(self) -> list[str]:
        """Return which templates did not take a kernel that they were tried on, and why."""
        return [f"{name}: {kernel.made.note}" for name, kernel in self.scheduled.items() if kernel.made.note]


def _with_source(made: tirx.PrimFunc, source: tirx.PrimFunc) -> tirx.PrimFunc:
    try:
        text = tvm.ir.save_json(source)
    except Exception:  # it holds what has no text, such as a function among its attributes
        return made
    return made.with_attr(SOURCE, hashlib.sha256(text.encode()).hexdigest())
