"""How a convolution is computed: the sum over its taps, or Winograd's method where it applies and is estimated to be
faster."""

from __future__ import annotations

from collections.abc import Iterator

from backends.cpu.kernels.shared.arithmetic import FLOAT32, arithmetic_of
from backends.cpu.kernels.shared.blocking import blocking_space
from backends.cpu.kernels.shared.contraction import Blocking
from backends.cpu.kernels.shared.convolution.sum_over_taps import taps_extents
from backends.cpu.kernels.shared.convolution.winograd_plan import (
    WinogradPlan,
    plan_winograd,
    winograd_plans,
    winograd_shape,
)
from backends.cpu.kernels.shared.window import Window
from backends.cpu.machine import Machine
from backends.tensorir.extents import typical
from backends.tensorir.roles import Roles
from backends.tensorir.space import Space
from backends.tensorir.stages import dims_of, dtype_of, shape_of


def conv2d_space(roles: Roles, machine: Machine, threads: int) -> Space[Blocking | WinogradPlan]:
    """Return the blockings of the sum, and the plans of Winograd's method where it applies; at typical sizes where they
    are open."""
    data, packed = roles.operands
    window, arithmetic = Window.from_annotation(roles.attrs["window"]), arithmetic_of(dtype_of(data), machine)
    image = [typical(extent) for extent in dims_of(data)]
    sizes = (window, image, shape_of(packed)[0], roles.shape[3], machine.vector_lanes)
    sums = blocking_space(taps_extents(*sizes, arithmetic), machine, threads)
    shape = winograd_shape(*sizes) if arithmetic is FLOAT32 else None
    best = plan_winograd(shape, machine, threads) if shape else None
    if shape is None or best is None:
        return Space(sums.default, sums.every)

    def every() -> Iterator[Blocking | WinogradPlan]:
        yield from sums
        yield from winograd_plans(shape, machine, threads)

    return Space(best if best.cycles < sums.default.cycles else sums.default, every)
