"""Schedules a kernel by the first template that supports it, at the point with the best estimate or at a given one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tvm import tirx

from backends.cpu.kernels.priority import is_last_resort, takers
from backends.cpu.kernels.shared.mapped import map_images, map_long_images
from backends.cpu.kernels.template import Marks, Template
from backends.cpu.llvm_level import with_level
from backends.cpu.machine import Machine
from backends.cpu.vector_math import VectorizeMath
from backends.kernel import UNSCHEDULED
from backends.tensorir.bare_symbols import with_bare_symbols
from backends.tensorir.result import Scheduled
from backends.tensorir.skip_nothing import skip_nothing
from backends.tensorir.space import Choices, Point
from backends.tensorir.symbols import symbols_of
from backends.tensorir.written import written_loops
from fusion.declined import Declined
from fusion.failures import cause

_AVX512_LANES = 16
_ANCHORED = "schedule_anchored"
"""The name in notes of whichever template claims a kernel with anchors."""
_AT_POINT = "at_point"


@dataclass(frozen=True)
class _Attempt:
    """A way to schedule a kernel: a template, at its default or a given point.

    Attributes:
        name: The name in notes.
        run: Returns the scheduled kernel. Raises `Declined` with the reason.
    """

    name: str
    run: Callable[[], Scheduled]


def schedule(
    func: tirx.PrimFunc, machine: Machine, threads: int, point: Point | None = None, *, plain: bool = False
) -> Scheduled:
    """Schedule one kernel by the template that claims it, or else by the first that supports it.

    Never raises for a valid PrimFunc; the note of the result says which templates declined, and why.

    Args:
        point: A point of the space that `read_choices` returns; None for the default of the first template.
        plain: Whether to use TVM's own loops, without any template.
    """
    written = written_loops(func)
    if written is not None:
        return Scheduled(with_bare_symbols(written), "written", "as it came")
    func = with_bare_symbols(func)
    if symbols_of(func) and not plain:
        return _schedule_open(func, machine, threads)
    return _ranked(_first(() if plain else _attempts(func, machine, threads, point), func, machine), func)


def read_choices(func: tirx.PrimFunc, machine: Machine, threads: int) -> Choices | None:
    """Return the schedule space of `func`, of the first template that supports it; None if none does."""
    choices = _choices(func, machine, threads)
    if choices is None:
        return None

    def emit(point: Point) -> Scheduled:
        attempt = _Attempt(_AT_POINT, partial(choices.emit, point))
        return _ranked(_first((attempt,), func, machine), func)

    return replace(choices, emit=emit)


def _attempts(func: tirx.PrimFunc, machine: Machine, threads: int, point: Point | None) -> Iterator[_Attempt]:
    if point is not None:
        yield _Attempt(_AT_POINT, lambda: _at_point(func, machine, threads, point))
    marks = Marks.of(func)
    for template in takers(func, marks):
        attempt = _default_of(template, func, machine, threads)
        yield replace(attempt, name=_ANCHORED) if template.claims and marks.anchors else attempt


def _schedule_open(func: tirx.PrimFunc, machine: Machine, threads: int) -> Scheduled:
    """Schedule a kernel with symbolic extents."""
    made = _first(_open_attempts(func, machine, threads), func, machine)
    if made.template != UNSCHEDULED:
        made = replace(made, func=with_level(skip_nothing(made.func, func), made.is_written_out))
    return _ranked(made, func)


def _ranked(made: Scheduled, func: tirx.PrimFunc) -> Scheduled:
    """Return `made` with `is_last_resort` filled in."""
    return replace(made, is_last_resort=made.template == UNSCHEDULED or is_last_resort(made.template, Marks.of(func)))


def _open_attempts(func: tirx.PrimFunc, machine: Machine, threads: int) -> Iterator[_Attempt]:
    """Yield the ways to schedule a kernel with symbolic extents.

    If only the number of images is symbolic, any template can schedule one image, in a loop over all. A template with
    an `emit_open` of its own does so only if it has an anchor and images are long, so that each is as fast as a static
    one.
    """
    is_of_images = len(symbols_of(func)) == 1
    for template in takers(func, Marks.of(func)):
        read = _reader(template, machine)
        if template.emit_open is not None:
            if template.claims and is_of_images:
                yield _Attempt(f"{template.name} of long images", partial(map_long_images, func, threads, read))
            yield _Attempt(template.name, partial(template.emit_open, func, machine, threads))
        yield _Attempt(f"{template.name} of one image", partial(map_images, func, threads, read))


def _reader(template: Template[Any, Any], machine: Machine) -> Callable[[tirx.PrimFunc, int], Choices]:
    return lambda func, threads: _choices_of(template, func, machine, threads)


def _first(attempts: Iterable[_Attempt], func: tirx.PrimFunc, machine: Machine) -> Scheduled:
    """Return the result of the first attempt that neither declines nor fails, with vectorisable math functions.

    A failure counts as declining: it must not end the compilation, as TVM can run an unscheduled kernel too.
    """
    refusals: list[str] = []
    for attempt in attempts:
        try:
            made = attempt.run()
            math = VectorizeMath(has_scalef=machine.vector_lanes == _AVX512_LANES)
            return replace(made, func=math(made.func), note="; ".join(refusals))
        except MemoryError:
            raise
        except Declined as reason:
            refusals.append(f"{attempt.name} declined: {reason}")
        except Exception as failure:  # TVM raises whatever its checks raise
            refusals.append(f"{attempt.name} failed: {cause(failure)}")
    return Scheduled(func, UNSCHEDULED, "as TVM lowers it", "; ".join(refusals))


def _default_of(template: Template[Any, Any], func: tirx.PrimFunc, machine: Machine, threads: int) -> _Attempt:
    def run() -> Scheduled:
        choices = _choices_of(template, func, machine, threads)
        return choices.emit(choices.space.default)

    return _Attempt(template.name, run)


def _at_point(func: tirx.PrimFunc, machine: Machine, threads: int, point: Point) -> Scheduled:
    choices = _choices(func, machine, threads)
    if choices is None:
        raise Declined("it has no space")
    return choices.emit(point)


def _choices(func: tirx.PrimFunc, machine: Machine, threads: int) -> Choices | None:
    """Return the space of the first template that supports `func`, whose kernels are as the template makes them."""
    for template in takers(func, Marks.of(func)):
        try:
            return _choices_of(template, func, machine, threads)
        except Declined:
            continue
    return None


def _choices_of(template: Template[Any, Any], func: tirx.PrimFunc, machine: Machine, threads: int) -> Choices:
    parts = template.read(func)

    def emit(point: Point) -> Scheduled:
        return replace(template.emit(func, parts, machine, point), cycles=float(point.cycles))

    return Choices(template.name, template.space(parts, machine, threads), emit)
