"""The loops of a convolution: those of `contraction`, the sum over its taps, or those of Winograd's method."""

from __future__ import annotations

from dataclasses import replace

from tvm import tirx

from backends.cpu.kernels.conv2d.emit_winograd import emit_winograd
from backends.cpu.kernels.conv2d.plan import shape_for_winograd
from backends.cpu.kernels.shared.contraction import Blocking, Contraction, Pixel, emit
from backends.cpu.kernels.shared.convolution.sum_over_taps import sum_over_taps
from backends.cpu.kernels.shared.convolution.winograd_plan import WinogradPlan
from backends.cpu.kernels.shared.packed_tiles import InTiles
from backends.cpu.kernels.shared.window import Window
from backends.cpu.machine import Machine
from backends.tensorir.emit import Expr, Nest
from backends.tensorir.result import Scheduled
from backends.tensorir.roles import Roles
from backends.tensorir.stages import shape_of
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
    if not blocking.in_tiles:
        emit(nest, [_inside_image(work, roles)], blocking, fill)
        return Scheduled(func.with_body(nest.finish()), CONV2D, str(blocking))
    tiles = InTiles.of([work], [roles.operands[1]])
    emit(nest, tiles.works, blocking, fill)
    return tiles.scheduled(func, nest.finish(), CONV2D, str(blocking))


def _inside_image(work: Contraction, roles: Roles) -> Contraction:
    """Return `work` without the taps of a dilated window that lie outside of the image for a whole tile, where it has
    padding: 3x3 taps 24 pixels apart over 28x28 pixels lie on zeros for the most part."""
    window = Window.from_annotation(roles.attrs["window"])
    if max(window.dilation) == 1 or not any(window.padding):
        return work
    _, *image, _ = shape_of(roles.operands[0])

    def seen(first: Pixel, last: Pixel) -> list[tuple[Expr, Expr]]:
        axes = range(len(work.extents.taps))
        return [window.taps_inside(axis, image[axis], first[axis], last[axis]) for axis in axes]

    return replace(work, seen=seen)
