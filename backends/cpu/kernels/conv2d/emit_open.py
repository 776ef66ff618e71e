"""A convolution over images of which only a call knows the sizes, as a sum over its taps."""

from __future__ import annotations

from dataclasses import replace

from tvm import tirx

from backends.cpu.kernels.conv2d.emit_open_winograd import emit_open_winograd
from backends.cpu.kernels.conv2d.plan import conv2d_space, shape_for_winograd
from backends.cpu.kernels.shared.convolution.sum_over_taps import sum_over_taps
from backends.cpu.kernels.shared.convolution.winograd_plan import WinogradPlan
from backends.cpu.kernels.shared.open_image_contraction import choose_panels, emit_open_image, grid_of
from backends.cpu.kernels.shared.window import Window
from backends.cpu.machine import Machine
from backends.tensorir.emit import Nest
from backends.tensorir.result import Scheduled
from backends.tensorir.roles import read_roles
from backends.tensorir.stages import dims_of
from fusion.declined import Declined
from partition.access import CONV2D


def emit_open_conv2d(func: tirx.PrimFunc, machine: Machine, threads: int) -> Scheduled:
    """Return the loops for images of any size.

    Raises:
        Declined: It has another form.
    """
    roles, nest = read_roles(func), Nest()
    depth, channels = dims_of(roles.operands[0])[3], roles.shape[3]
    if not (isinstance(depth, int) and isinstance(channels, int)):
        raise Declined("only the call knows its channels")
    form = conv2d_space(roles, replace(machine, tiles=False), threads).default  # loops for any size have no terms
    if isinstance(form, WinogradPlan):
        shape = shape_for_winograd(roles, machine)
        assert shape is not None, "a plan comes from its space"
        return emit_open_winograd(func, roles, machine, threads, typical=(shape, form))
    work, _ = sum_over_taps(roles, machine, 1)
    panels = choose_panels(work.extents, machine, threads)
    batch, rows, columns, _ = roles.shape
    width = dims_of(roles.operands[0])[2]
    window = Window.from_annotation(roles.attrs["window"])
    row_bytes = width * (work.arithmetic.bytes * depth * window.strides[0])
    grid = grid_of(work, panels, batch, rows, row_bytes, machine=machine, threads=threads).settled(nest)
    work, prologue = sum_over_taps(roles, machine, grid.most_rows)
    emit_open_image(nest, work, panels, grid, width=columns, prologue=prologue)
    return Scheduled(func.with_body(nest.finish()), CONV2D, f"{grid}; {panels}")
