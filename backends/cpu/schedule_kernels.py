"""Give every PrimFunc of a module its loops."""

from __future__ import annotations

from dataclasses import dataclass, field

import tvm
from tvm import tirx

from backends.cpu.anchors.conv2d import Conv2D
from backends.cpu.anchors.depthwise import Depthwise
from backends.cpu.anchors.matmul import BatchMatmul, Matmul
from backends.cpu.anchors.roles import find_anchor, read_roles
from backends.cpu.templates import schedule_memory_bound
from backends.cpu.templates.result import NotRecognized, Scheduled
from backends.cpu.vector_math import VectorizeMath
from fusion.context import Machine

ANCHORED = {template.name: template for template in (Matmul(), BatchMatmul(), Conv2D(), Depthwise())}


@dataclass(frozen=True)
class Kernel:
    """A PrimFunc before and after it got its loops."""

    source: tirx.PrimFunc
    made: Scheduled


@dataclass(frozen=True)
class ScheduleKernels:
    """Unscheduled PrimFuncs -> vectorised, parallel ones; `scheduled` keeps both forms of each by name."""

    machine: Machine
    threads: int
    scheduled: dict[str, Kernel] = field(default_factory=dict)
    name: str = "schedule_kernels"

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        result = mod.clone()
        for symbol, func in mod.functions.items():
            if isinstance(func, tirx.PrimFunc):
                made = schedule(func, self.machine, self.threads)
                self.scheduled[symbol.name_hint] = Kernel(func, made)
                result[symbol] = made.func
        return result


def schedule(func: tirx.PrimFunc, machine: Machine, threads: int) -> Scheduled:
    """Return the loops of one kernel from the template of its anchor, or of the memory-bound ones where it has none."""
    if find_anchor(func) is None:
        return schedule_memory_bound(func, machine, threads)
    try:
        roles = read_roles(func)
    except NotRecognized:
        return schedule_memory_bound(func, machine, threads)
    made = ANCHORED[roles.kind].apply(func, roles, machine, threads)
    return Scheduled(VectorizeMath()(made.func), made.template, made.tile)
