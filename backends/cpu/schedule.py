"""Gives a kernel its loops: those of the template that takes it, at its best point by estimate or at a chosen one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from tvm import tirx

from backends.cpu.kernels.attention.emit import Attention
from backends.cpu.kernels.chains import read_kernel
from backends.cpu.kernels.conv2d.emit import Conv2D
from backends.cpu.kernels.conv2d_transpose.emit import Conv2DTranspose
from backends.cpu.kernels.conv_chain.emit import ConvChain
from backends.cpu.kernels.depthwise.emit import GROUPED, Depthwise
from backends.cpu.kernels.image_conv2d.emit import ImageConv2D
from backends.cpu.kernels.matmul.emit import Matmul
from backends.cpu.kernels.matmul.lower import BatchMatmul
from backends.cpu.kernels.memory_bound import TEMPLATES, schedule_with
from backends.cpu.kernels.planar_window.emit import PlanarWindow
from backends.cpu.kernels.recurrent.read import Recurrent
from backends.cpu.kernels.rolling_window.emit import RollingWindow
from backends.cpu.kernels.stitch_stages.emit import StitchStages
from backends.cpu.machine import Machine
from backends.tensorir.result import Declined, NotRecognized, Scheduled
from backends.tensorir.roles import find_anchors
from backends.tensorir.space import Choices, Point, Space
from backends.tensorir.written import written_loops
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
    Matmul(), BatchMatmul(), Conv2D(), Conv2DTranspose(), ImageConv2D(), Depthwise(), Depthwise(GROUPED),
    PlanarWindow(), Attention(), RollingWindow(), ConvChain(),
)  # fmt: skip
ANCHORED = {template.name: template for template in _TEMPLATES}


@dataclass(frozen=True)
class ScheduleAnchored:
    """Template of kernels with one anchor or more: that of their kind."""

    name: str = "schedule_anchored"

    def apply(self, func: tirx.PrimFunc, machine: Machine, threads: int) -> Scheduled | Declined:
        """Return the loops of the anchor's template; declines a function whose blocks have other roles."""
        try:
            choices = _anchored(func, machine, threads)
            return choices.emit(choices.space.default)
        except NotRecognized as reason:
            return Declined(str(reason))


@dataclass(frozen=True)
class _AtPoint:
    """Template of one kernel, whose point is chosen already."""

    point: Point
    name: str = "at_point"

    def apply(self, func: tirx.PrimFunc, machine: Machine, threads: int) -> Scheduled | Declined:
        choices = read_choices(func, machine, threads)
        return Declined("it has no space") if choices is None else choices.emit(self.point)


def schedule(
    func: tirx.PrimFunc, machine: Machine, threads: int, point: Point | None = None, *, plain: bool = False
) -> Scheduled:
    """Return the loops of one kernel from the template of its anchor, or of the memory-bound ones where it has none.

    Never raises for a valid PrimFunc; the note of the result tells what did not take it.

    Args:
        point: Of the space that `read_choices` returns; None for the default of the first template that takes it.
        plain: Leave it the loops that TVM gives it.
    """
    written = written_loops(func)
    if written is not None:
        return Scheduled(written, "written", "as it came")
    if plain:
        return schedule_with((), func, machine, threads)
    chosen = () if point is None else (_AtPoint(point),)
    anchored = (ScheduleAnchored(),) if find_anchors(func) else ()
    recurrent = (Recurrent(),) if recurrence_of(func) else ()
    return schedule_with((*chosen, *anchored, *recurrent, *TEMPLATES), func, machine, threads)


def read_choices(func: tirx.PrimFunc, machine: Machine, threads: int) -> Choices | None:
    """Return what the template that takes `func` leaves open; None where that is nothing."""
    readers: tuple[Callable[[tirx.PrimFunc, Machine, int], Choices], ...] = (
        *((_anchored,) if find_anchors(func) else ()),
        *((_recurrent,) if recurrence_of(func) else ()),
        _stitched,
    )
    for read in readers:
        try:
            return read(func, machine, threads)
        except NotRecognized:
            continue
    return None


def _anchored(func: tirx.PrimFunc, machine: Machine, threads: int) -> Choices:
    roles = read_kernel(func)
    template = ANCHORED[roles.kind]

    def emit(point: Point) -> Scheduled:
        return replace(template.emit(func, roles, machine, point), cycles=float(point.cycles))

    return Choices(template.space(roles, machine, threads), emit)


def _recurrent(func: tirx.PrimFunc, machine: Machine, threads: int) -> Choices:
    template = Recurrent()
    return Choices(template.space(func, machine, threads), lambda point: template.emit(func, machine, point))


def _stitched(func: tirx.PrimFunc, machine: Machine, threads: int) -> Choices:
    template = StitchStages()
    return Choices(template.space(func, machine, threads), lambda point: template.emit(func, machine, point))
