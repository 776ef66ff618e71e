"""The pass that schedules every PrimFunc of a module."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import tvm
from tvm import tirx

from backends.backend import ObjectWriter
from backends.tensorir.repack_weights import repack_weights
from backends.tensorir.result import Kernel, Scheduled
from backends.tensorir.space import Point
from fusion.facts import PassResult, TellingPass
from fusion.system.abandon import checkpoint

Schedule = Callable[[tirx.PrimFunc, "Point | None"], Scheduled]
"""(kernel, point or None for the default) -> the scheduled kernel."""

SOURCE = "fusion.source"
"""Attribute of a scheduled kernel: the sha256 of the unscheduled PrimFunc."""


@dataclass(frozen=True)
class ScheduledKernels:
    """The kernels of a module by name, before and after scheduling."""

    by_name: Mapping[str, Kernel] = field(default_factory=dict)

    def notes(self) -> list[str]:
        """Return the templates that declined, with their reasons, a line for each kernel."""
        return [f"{name}: {kernel.made.note}" for name, kernel in self.by_name.items() if kernel.made.note]


@dataclass(frozen=True)
class ScheduleKernels(TellingPass[ScheduledKernels]):
    """Unscheduled PrimFuncs -> vectorised, parallel ones.

    Attributes:
        schedule: Schedules one kernel.
        points: By name of a kernel, the point to use in place of the default.
        name_sources: Whether to attach `SOURCE` to kernels, by which their code is cached.
        writer: Begins to compile each kernel in the background; None to compile none yet.
        known: Kernels that are scheduled already, by name.
    """

    schedule: Schedule
    points: Mapping[str, Point] = field(default_factory=dict)
    name_sources: bool = False
    writer: ObjectWriter | None = None
    known: Mapping[str, Kernel] = field(default_factory=dict)
    name: str = "schedule_kernels"

    def run(self, mod: tvm.IRModule) -> PassResult[ScheduledKernels]:
        """Return the scheduled module, and each kernel before and after."""
        result, check = mod.clone(), checkpoint()
        kernels, repacks = {}, {}
        for symbol, func in mod.functions.items():
            check()
            if isinstance(func, tirx.PrimFunc):
                name = symbol.name_hint
                kernel = self.known.get(name) or self.kernel(name, func)
                kernels[name], result[symbol] = kernel, kernel.func
                if kernel.made.repack:
                    repacks[symbol] = kernel.made.repack
        return PassResult(repack_weights(result, repacks), ScheduledKernels(kernels))

    def kernel(self, name: str, func: tirx.PrimFunc) -> Kernel:
        """Schedule one kernel, and begin to compile it."""
        made = self.schedule(func, self.points.get(name))
        kernel = Kernel(func, made, _with_source(made.func, func) if self.name_sources else made.func)
        if self.writer is not None:
            self.writer.begin(name, kernel.func)
        return kernel


def _with_source(made: tirx.PrimFunc, source: tirx.PrimFunc) -> tirx.PrimFunc:
    try:
        text = tvm.ir.save_json(source)
    except Exception:  # it cannot be serialised, as with a function among its attributes
        return made
    return made.with_attr(SOURCE, hashlib.sha256(text.encode()).hexdigest())
