"""How a convolution of planes is cut."""

from __future__ import annotations

from backends.cpu.kernels.shared.blocking import blocking_space
from backends.cpu.kernels.shared.contraction import Blocking
from backends.cpu.kernels.shared.convolution.sum_over_planes import planes_extents
from backends.cpu.machine import Machine
from backends.tensorir.roles import Roles
from backends.tensorir.space import Space


def image_conv2d_space(roles: Roles, machine: Machine, threads: int) -> Space[Blocking]:
    """Return the blockings of the sum."""
    return blocking_space(planes_extents(roles, machine), machine, threads)
