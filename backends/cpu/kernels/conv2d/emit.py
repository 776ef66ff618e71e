"""The loops of a convolution: those of `contraction`, the sum over its taps, or those of Winograd's method."""

from __future__ import annotations

from tvm import tirx

from backends.cpu.kernels.conv2d.emit_winograd import emit_winograd
from backends.cpu.kernels.conv2d.plan import shape_for_winograd
from backends.cpu.kernels.shared.contraction import Blocking, emit
from backends.cpu.kernels.shared.convolution.sum_over_taps import sum_over_taps
from backends.cpu.kernels.shared.convolution.winograd_plan import WinogradPlan
from backends.cpu.machine import Machine
from backends.tensorir.emit import Nest
from backends.tensorir.result import Scheduled
from backends.tensorir.roles import Roles
from partition.access import CONV2D


def emit_conv2d(func: tirx.PrimFunc, roles: Roles, machine: Machine, point: Blocking | WinogradPlan) -> Scheduled:
    """Return `func` in the form of `point`."""
    if isinstance(point, Blocking):
        return _emit_sum(func, roles, machine, point)
    shape = shape_for_winograd(roles, machine)
    assert shape is not None, "a plan comes from its space"
    return emit_winograd(func, roles, shape, point)


def _emit_sum(func: tirx.PrimFunc, roles: Roles, machine: Machine, blocking: Blocking) -> Scheduled:
    nest = Nest()
    work, fill = sum_over_taps(roles, machine, blocking.longest_task(roles.shape[1]))
    emit(nest, [work], blocking, fill)
    return Scheduled(func.with_body(nest.finish()), CONV2D, str(blocking))
