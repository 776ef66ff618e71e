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
    return depthwise_tiles(roles.shape, window_of(roles), taps_of(roles), machine, threads)


def taps_of(roles: Roles) -> int:
    """Return how many products each element of the result is the sum of."""
    taps = prod(window_of(roles).kernel)
    return taps * shape_of(roles.operands[1])[2] if roles.kind == GROUPED else taps


def window_of(roles: Roles) -> Window:
    """Return what an element of the result sees of the image."""
    return Window.from_annotation(roles.attrs["window"])
