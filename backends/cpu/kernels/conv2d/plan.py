"""How a convolution is computed: the sum over its taps, or Winograd's method where it applies and is estimated to be
faster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from backends.cpu.kernels.conv2d.lower import OF_THE_RUN
from backends.cpu.kernels.shared.arithmetic import FLOAT32, arithmetic_of
from backends.cpu.kernels.shared.blocking import blocking_space
from backends.cpu.kernels.shared.contraction import Blocking
from backends.cpu.kernels.shared.convolution.sum_over_taps import extents_of_sum
from backends.cpu.kernels.shared.convolution.winograd_plan import (
    WinogradPlan,
    WinogradShape,
    plan_winograd,
    winograd_features,
    winograd_plans,
    winograd_shape,
)
from backends.cpu.kernels.shared.convolution.winograd_transform import F4
from backends.cpu.kernels.shared.extents import may_be_in_tiles
from backends.cpu.kernels.shared.window import Window
from backends.cpu.machine import Machine
from backends.tensorir.extents import Extent, typical
from backends.tensorir.roles import Roles
from backends.tensorir.space import Space
from backends.tensorir.stages import dims_of, dtype_of, shape_of

_CACHED_BYTES = 32 << 20
"""The largest weights that a cache is taken to hold."""

_SMALL = 14
"""Height and width of a small image. 512 channels of 10x10 and 14x14 pixels took 1.7 and 1.6 times as long with the
form for 64x64 as with their own."""


def conv2d_space(roles: Roles, machine: Machine, threads: int) -> Space[Blocking | WinogradPlan]:
    """Return the blockings of the sum, and the plans of Winograd's method where it applies; at typical sizes where they
    are open."""
    extents = extents_of_sum(roles, machine, _image(roles, machine))
    if OF_THE_RUN not in roles.attrs:
        extents = may_be_in_tiles(extents, machine)
    sums = blocking_space(extents, machine, threads)
    has_transform = arithmetic_of(dtype_of(roles.operands[0]), machine) is FLOAT32
    shape = shape_for_winograd(roles, machine) if has_transform else None
    best = plan_winograd(shape, machine, threads) if shape else None

    def features(point: Blocking | WinogradPlan) -> Mapping[str, float]:
        if isinstance(point, Blocking):
            return sums.features(point)
        assert shape is not None, "only its sizes have such plans"
        return winograd_features(shape, machine, threads, point)

    if shape is None or best is None:
        return Space(sums.default, sums.every, features)

    def every() -> Iterator[Blocking | WinogradPlan]:
        yield from sums
        yield from winograd_plans(shape, machine, threads)

    return Space(best if best.cycles < sums.default.cycles else sums.default, every, features)


def shape_for_winograd(roles: Roles, machine: Machine) -> WinogradShape | None:
    """Return the sizes for Winograd's method, typical ones where they are open; None where it is none for it, or only
    the run knows both the weights and the sizes."""
    window, groups = Window.from_annotation(roles.attrs["window"]), shape_of(roles.operands[1])[0]
    shape = winograd_shape(window, _image(roles, machine), groups, roles.shape[3], machine.vector_lanes)
    if shape is None or OF_THE_RUN not in roles.attrs:
        return shape
    is_static = all(isinstance(extent, int) for extent in roles.shape)
    return replace(shape, is_known=False) if is_static else None


def _image(roles: Roles, machine: Machine) -> list[int]:
    """Return the shape of the image, a typical one where it is open: the layers whose transformed weights no cache
    holds are those that see small images."""
    batch, height, width, depth = dims_of(roles.operands[0])
    weight_bytes = 4 * F4.size**2 * depth * roles.shape[3]
    if weight_bytes <= max(machine.l3_bytes, _CACHED_BYTES):
        window = Window.from_annotation(roles.attrs["window"])
        sides = (_side(extent, window, axis) for axis, extent in enumerate((height, width)))
        return [typical(batch), *sides, depth]
    small = [extent if isinstance(extent, int) else _SMALL for extent in (height, width)]
    return [typical(batch), *small, depth]


def _side(extent: Extent, window: Window, axis: int) -> int:
    """Return a typical height or width: no less than some results need, as the window over a recording is longer than
    images are wide."""
    side = typical(extent)
    span = (window.kernel[axis] - 1) * window.dilation[axis] + 1
    return side if isinstance(extent, int) or span <= side else span + window.strides[axis] * (_SMALL - 1)
