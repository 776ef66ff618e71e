"""Give every PrimFunc of a module its loops."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import tvm
from tvm import tirx

from backends.cpu.anchors.attention import Attention
from backends.cpu.anchors.chains import read_kernel
from backends.cpu.anchors.conv2d import Conv2D
from backends.cpu.anchors.conv2d_transpose import Conv2DTranspose
from backends.cpu.anchors.conv_chain import ConvChain
from backends.cpu.anchors.depthwise import GROUPED, Depthwise
from backends.cpu.anchors.image_conv2d import ImageConv2D
from backends.cpu.anchors.matmul import BatchMatmul
from backends.cpu.anchors.planar_loops import PlanarWindow
from backends.cpu.anchors.recurrent import Recurrent
from backends.cpu.anchors.roles import find_anchors
from backends.cpu.anchors.rolling_window import RollingWindow
from backends.cpu.anchors.row_products import Matmul
from backends.cpu.repack_weights import repack_weights
from backends.cpu.templates import TEMPLATES, schedule_with
from backends.cpu.templates.result import Declined, NotRecognized, Scheduled
from backends.cpu.templates.space import Point, Space
from backends.cpu.templates.stitching import StitchStages
from backends.cpu.written import written_loops
from fusion.abandon import checkpoint
from fusion.context import Machine
from partition.recurrence import recurrence_of

R = TypeVar("R", contravariant=True)

SOURCE = "fusion.source"
"""Attribute of a kernel with loops: the sha256 of the PrimFunc that they were made of."""


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
class Kernel:
    """A PrimFunc before and after it got its loops."""

    source: tirx.PrimFunc
    made: Scheduled


@dataclass(frozen=True)
class ScheduleKernels:
    """Unscheduled PrimFuncs -> vectorised, parallel ones; `scheduled` keeps both forms of each by name.

    Attributes:
        points: Of the kernels, by name, that get another point of their space than its default.
        plain: Leave every kernel the loops that TVM gives it.
        name_sources: Whether each kernel that can be named says what it was made of, as `SOURCE`.
    """

    machine: Machine
    threads: int
    points: Mapping[str, Point] = field(default_factory=dict)
    scheduled: dict[str, Kernel] = field(default_factory=dict)
    plain: bool = False
    name_sources: bool = False
    name: str = "schedule_kernels"

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        result, check = mod.clone(), checkpoint()
        repacks = {}
        for symbol, func in mod.functions.items():
            check()
            if isinstance(func, tirx.PrimFunc):
                point = self.points.get(symbol.name_hint)
                made = schedule(func, self.machine, self.threads, point, plain=self.plain)
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


@dataclass(frozen=True)
class Choices:
    """What the template of a kernel leaves open.

    Attributes:
        space: The points.
        emit: Returns the loops of one.
    """

    space: Space[Any]
    emit: Callable[[Any], Scheduled]


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
