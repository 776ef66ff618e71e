"""The loops of a convolution: those of `contraction`, the sum over its taps, or those of Winograd's method."""

from __future__ import annotations

from tvm import tirx

from backends.cpu.kernels.conv2d.emit_winograd import emit_winograd
from backends.cpu.kernels.shared.contraction import Blocking, emit
from backends.cpu.kernels.shared.convolution.sum_over_taps import sum_over_taps
from backends.cpu.kernels.shared.convolution.winograd_plan import WinogradPlan, winograd_shape
from backends.cpu.kernels.shared.window import Window
from backends.cpu.machine import Machine
from backends.tensorir.emit import Nest
from backends.tensorir.result import Scheduled
from backends.tensorir.roles import Roles
from backends.tensorir.stages import shape_of
from partition.access import CONV2D


def emit_conv2d(func: tirx.PrimFunc, roles: Roles, machine: Machine, point: Blocking | WinogradPlan) -> Scheduled:
    """Return `func` in the form of `point`."""
    window, data = Window.from_annotation(roles.attrs["window"]), roles.operands[0]
    if isinstance(point, Blocking):
        return _emit_sum(func, roles, machine, point)
    groups = shape_of(roles.operands[1])[0]
    shape = winograd_shape(window, shape_of(data), groups, roles.shape[3], machine.vector_lanes)
    assert shape is not None, "a plan comes from its space"
    return emit_winograd(func, roles, shape, point)


def _emit_sum(func: tirx.PrimFunc, roles: Roles, machine: Machine, blocking: Blocking) -> Scheduled:
    nest = Nest()
    work, fill = sum_over_taps(roles, machine, blocking.longest_task(roles.shape[1]))
    emit(nest, [work], blocking, fill)
    return Scheduled(func.with_body(nest.finish()), CONV2D, str(blocking))
