"""The loops of a convolution of planes: see `contraction`."""

from __future__ import annotations

from tvm import tirx

from backends.cpu.kernels.shared.contraction import Blocking, emit
from backends.cpu.kernels.shared.convolution.sum_over_planes import sum_over_planes
from backends.cpu.machine import Machine
from backends.tensorir.emit import Nest
from backends.tensorir.result import Scheduled
from backends.tensorir.roles import Roles
from partition.access import IMAGE_CONV2D


def emit_image_conv2d(func: tirx.PrimFunc, roles: Roles, machine: Machine, point: Blocking) -> Scheduled:
    """Return the micro-kernel form of `func`."""
    nest = Nest()
    work, fill = sum_over_planes(roles, machine, point.longest_task(roles.shape[1]))
    emit(nest, [work], point, fill)
    return Scheduled(func.with_body(nest.finish()), IMAGE_CONV2D, str(point))
