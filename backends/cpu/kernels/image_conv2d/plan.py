"""How a convolution of planes is cut."""

from __future__ import annotations

from math import prod

from backends.cpu.kernels.shared.blocking import blocking_space
from backends.cpu.kernels.shared.contraction import Blocking
from backends.cpu.kernels.shared.extents import Extents
from backends.cpu.kernels.shared.window import Window
from backends.cpu.machine import Machine
from backends.tensorir.roles import Roles
from backends.tensorir.space import Space
from backends.tensorir.stages import shape_of


def image_conv2d_space(roles: Roles, machine: Machine, threads: int) -> Space[Blocking]:
    """Return the blockings of the sum."""
    return blocking_space(extents_of(roles, machine), machine, threads)


def extents_of(roles: Roles, machine: Machine) -> Extents:
    """Return the sizes of the sum: planes are taps, k runs over the window."""
    batch, planes, height, width = shape_of(roles.operands[0])
    kernel = Window.from_annotation(roles.attrs["window"]).kernel
    _, out_height, out_width, channels = roles.shape
    return Extents(
        outer=batch, groups=1, height=out_height, width=out_width, channels=channels, taps=(planes,),
        depth=prod(kernel), lanes=machine.vector_lanes, input_bytes=4 * planes * height * width,
    )  # fmt: skip
