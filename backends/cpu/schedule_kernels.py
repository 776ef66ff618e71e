"""Give every PrimFunc of a module its loops."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import tvm
from tvm import tirx

from backends.cpu.anchors.attention import Attention
from backends.cpu.anchors.chains import read_chain
from backends.cpu.anchors.conv2d import Conv2D
from backends.cpu.anchors.conv2d_transpose import Conv2DTranspose
from backends.cpu.anchors.depthwise import Depthwise
from backends.cpu.anchors.image_conv2d import ImageConv2D
from backends.cpu.anchors.matmul import BatchMatmul, Matmul
from backends.cpu.anchors.planar_loops import PlanarWindow
from backends.cpu.anchors.pointwise_depthwise import PointwiseDepthwise
from backends.cpu.anchors.recurrent import Recurrent
from backends.cpu.anchors.roles import find_anchors, read_roles
from backends.cpu.repack_weights import repack_weights
from backends.cpu.templates import TEMPLATES, schedule_with
from backends.cpu.templates.result import Declined, NotRecognized, Scheduled
from backends.cpu.templates.space import Space
from fusion.context import Machine
from partition.recurrence import recurrence_of

R = TypeVar("R", contravariant=True)


class Anchored(Protocol[R]):
    """Template of one kind of anchor: a space of points, and the loops of each; `R` is what its blocks are read as."""

    @property
    def name(self) -> str:
        """The kind."""
        ...

    def space(self, roles: R, machine: Machine, threads: int) -> Space[Any]:
        """Return the points for one kernel, all of them right."""
        ...

    def emit(self, func: tirx.PrimFunc, roles: R, machine: Machine, point: Any) -> Scheduled:
        """Return `func` with the loops of a point of its space."""
        ...


_TEMPLATES: tuple[Anchored[Any], ...] = (
    Matmul(), BatchMatmul(), Conv2D(), Conv2DTranspose(), ImageConv2D(), Depthwise(), PlanarWindow(), Attention(),
    PointwiseDepthwise(),
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
    """Template of kernels with an anchor, or the two of a chain: that of their kind."""

    name: str = "schedule_anchored"

    def apply(self, func: tirx.PrimFunc, machine: Machine, threads: int) -> Scheduled | Declined:
        """Return the loops of the anchor's template; declines a function whose blocks have other roles."""
        try:
            roles = read_roles(func) if len(find_anchors(func)) == 1 else read_chain(func)
            template = ANCHORED[roles.kind]
            point = template.space(roles, machine, threads).default
            return replace(template.emit(func, roles, machine, point), cycles=float(point.cycles))
        except NotRecognized as reason:
            return Declined(str(reason))


def schedule(func: tirx.PrimFunc, machine: Machine, threads: int) -> Scheduled:
    """Return the loops of one kernel from the template of its anchor, or of the memory-bound ones where it has none.

    Never raises for a valid PrimFunc; the note of the result tells what did not take it.
    """
    anchored = (ScheduleAnchored(),) if find_anchors(func) else ()
    recurrent = (Recurrent(),) if recurrence_of(func) else ()
    return schedule_with((*anchored, *recurrent, *TEMPLATES), func, machine, threads)
