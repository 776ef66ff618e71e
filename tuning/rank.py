"""Which points of kernels a model of this machine would take, where nothing was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import nsmallest
from math import exp

from tvm import tirx

from backends.backend import KernelCompiler
from backends.tensorir.space import Choices, Point
from fusion.counted import counted
from partition.access import is_static
from tuning.chosen import Chosen
from tuning.features import Features, features_of
from tuning.known import choices_of, tensors_of
from tuning.machine_model import MachineModel
from tuning.task import Tensors

MOST = 32
"""Points beside the default that are asked about, the best by estimate: of many points that a model has seen nothing
like, one looks good by mistake."""


def rank(funcs: Mapping[str, tirx.PrimFunc], compiler: KernelCompiler, machine: MachineModel) -> Chosen:
    """Return the points of those of `funcs` that are expected to be faster so than at the default."""
    points, asked = dict[str, Point](), 0
    for name, func in funcs.items() if machine.errors else ():
        choices = choices_of(func, compiler) if is_static(func) else None
        if choices is not None:
            asked += choices.family in machine.errors
            point = better_point(choices, tensors_of(func), machine)
            if point is not None:
                points[name] = point
    said = f"a model of this machine was asked about {counted(asked, 'kernel')}, and chose for {len(points)}"
    return Chosen(points, notes=(said,) if asked else ())


def better_point(choices: Choices, tensors: Tensors, machine: MachineModel) -> Point | None:
    """Return the point that is expected to gain most on the default, more than the model is wrong by; None where none
    is.

    Args:
        tensors: Dtypes and shapes of the kernel's parameters.
    """
    if choices.family not in machine.errors:
        return None
    space = choices.space
    others = nsmallest(MOST, (point for point in space if point != space.default), key=lambda point: point.cycles)
    points = [space.default, *others]
    place = better_place(choices.family, features_of(space, tensors, points), machine)
    return points[place] if place else None


def better_place(family: str, features: Sequence[Features], machine: MachineModel) -> int:
    """Return which of some points of a kernel, the default first, is expected to gain most, and more than the model is
    wrong by; 0 where none is."""
    error, model = machine.errors.get(family), machine.model
    if error is None or model is None or len(features) == 1:
        return 0
    ratio, place = min((ratio, place) for place, ratio in enumerate(model.ratios(features)) if place)
    return place if ratio < exp(-error) else 0
