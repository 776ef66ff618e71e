"""Give every PrimFunc of a module its loops."""

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
from fusion.abandon import checkpoint
from fusion.facts import PassResult, TellingPass

Schedule = Callable[[tirx.PrimFunc, "Point | None"], Scheduled]
"""(kernel, point or None for the default) -> the kernel with its loops."""

SOURCE = "fusion.source"
"""Attribute of a kernel with loops: the sha256 of the PrimFunc that they were made of."""


@dataclass(frozen=True)
class ScheduledKernels:
    """Each kernel without and with its loops."""

    by_name: Mapping[str, Kernel] = field(default_factory=dict)

    def notes(self) -> list[str]:
        """Return which templates did not take a kernel that they were tried on, and why."""
        return [f"{name}: {kernel.made.note}" for name, kernel in self.by_name.items() if kernel.made.note]


@dataclass(frozen=True)
class ScheduleKernels(TellingPass[ScheduledKernels]):
    """Unscheduled PrimFuncs -> vectorised, parallel ones.

    Attributes:
        schedule: Gives one kernel its loops.
        points: Of the kernels, by name, that get another point of their space than its default.
        name_sources: Whether each kernel that can be named says what it was made of, as `SOURCE`.
        writer: Begins the code of each.
        known: By name, those kernels of the module that have their loops already.
    """

    schedule: Schedule
    points: Mapping[str, Point] = field(default_factory=dict)
    name_sources: bool = False
    writer: ObjectWriter | None = None
    known: Mapping[str, Kernel] = field(default_factory=dict)
    name: str = "schedule_kernels"

    def run(self, mod: tvm.IRModule) -> PassResult[ScheduledKernels]:
        """Return the module with loops, and each kernel without and with them."""
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
        """Return the kernel of this name without and with its loops; its code is begun."""
        made = self.schedule(func, self.points.get(name))
        kernel = Kernel(func, made, _with_source(made.func, func) if self.name_sources else made.func)
        if self.writer is not None:
            self.writer.begin(name, kernel.func)
        return kernel


def _with_source(made: tirx.PrimFunc, source: tirx.PrimFunc) -> tirx.PrimFunc:
    try:
        text = tvm.ir.save_json(source)
    except Exception:  # it holds what has no text, such as a function among its attributes
        return made
    return made.with_attr(SOURCE, hashlib.sha256(text.encode()).hexdigest())
