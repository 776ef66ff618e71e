"""How a depthwise convolution, or one in narrow groups, is cut."""

from __future__ import annotations

from math import prod

from backends.cpu.kernels.depthwise.lower import GROUPED
from backends.cpu.kernels.shared.convolution.depthwise_tiles import DepthwiseTile, depthwise_tiles
from backends.cpu.kernels.shared.window import Window
from backends.cpu.machine import Machine
from backends.tensorir.roles import Roles
from backends.tensorir.space import Space
from backends.tensorir.stages import shape_of


def depthwise_space(roles: Roles, machine: Machine, threads: int) -> Space[DepthwiseTile]:
    """Return every register tile, with every cut of the channels."""
    taps = prod(Window.from_annotation(roles.attrs["window"]).kernel)
    taps *= shape_of(roles.operands[1])[2] if roles.kind == GROUPED else 1
    return depthwise_tiles(roles.shape, taps, machine, threads)
