"""Give every PrimFunc of a module its loops."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import tvm
from tvm import tirx

from backends.cpu.anchors.attention import ScheduleAttention
from backends.cpu.anchors.conv2d import Conv2D
from backends.cpu.anchors.depthwise import Depthwise
from backends.cpu.anchors.image_conv2d import ImageConv2D
from backends.cpu.anchors.matmul import BatchMatmul, Matmul
from backends.cpu.anchors.planar_loops import PlanarWindow
from backends.cpu.anchors.roles import Roles, find_anchors, read_roles
from backends.cpu.repack_weights import repack_weights
from backends.cpu.templates import TEMPLATES, schedule_with
from backends.cpu.templates.result import Declined, NotRecognized, Scheduled, Template
from backends.cpu.templates.space import Space
from fusion.context import Machine


class Anchored(Protocol):
    """Template of one kind of anchor: a space of points, and the loops of each."""

    @property
    def name(self) -> str:
        """The kind."""
        ...

    def space(self, roles: Roles, machine: Machine, threads: int) -> Space[Any]:
        """Return the points for one kernel, all of them right."""
        ...

    def emit(self, func: tirx.PrimFunc, roles: Roles, machine: Machine, point: Any) -> Scheduled:
        """Return `func` with the loops of a point of its space."""
        ...


_TEMPLATES: tuple[Anchored, ...] = (
    Matmul(), BatchMatmul(), Conv2D(), ImageConv2D(), Depthwise(), PlanarWindow(),
)  # fmt: skip
ANCHORED = {template.name: template for template in _TEMPLATES}


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
        repacks = {}
        for symbol, func in mod.functions.items():
            if isinstance(func, tirx.PrimFunc):
                made = schedule(func, self.machine, self.threads)
                self.scheduled[symbol.name_hint] = Kernel(func, made)
                result[symbol] = made.func
                if made.repack:
                    repacks[symbol] = made.repack
        return repack_weights(result, repacks)

    def notes(self) -> list[str]:
        """Return which templates did not take a kernel that they were tried on, and why."""
        return [f"{name}: {kernel.made.note}" for name, kernel in self.scheduled.items() if kernel.made.note]


@dataclass(frozen=True)
class ScheduleAnchored:
    """Template of kernels with one anchor: that of the anchor's kind."""

    name: str = "schedule_anchored"

    def apply(self, func: tirx.PrimFunc, machine: Machine, threads: int) -> Scheduled | Declined:
        """Return the loops of the anchor's template; declines a function whose blocks have other roles."""
        try:
            roles = read_roles(func)
            template = ANCHORED[roles.kind]
            return template.emit(func, roles, machine, template.space(roles, machine, threads).default)
        except NotRecognized as reason:
            return Declined(str(reason))


def schedule(func: tirx.PrimFunc, machine: Machine, threads: int) -> Scheduled:
    """Return the loops of one kernel from the template of its anchor, or of the memory-bound ones where it has none.

    Never raises for a valid PrimFunc; the note of the result tells what did not take it.
    """
    anchors = find_anchors(func)
    anchored: Template = ScheduleAnchored() if len(anchors) == 1 else ScheduleAttention()
    return schedule_with((*([anchored] if anchors else []), *TEMPLATES), func, machine, threads)
