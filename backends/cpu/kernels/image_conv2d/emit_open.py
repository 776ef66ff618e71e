"""A convolution of planes of which only a call knows the sizes."""

from __future__ import annotations

from tvm import tirx

from backends.cpu.kernels.shared.convolution.sum_over_planes import sum_over_planes
from backends.cpu.kernels.shared.open_image_contraction import choose_panels, emit_open_image, grid_of
from backends.cpu.kernels.shared.window import Window
from backends.cpu.machine import Machine
from backends.tensorir.emit import Nest
from backends.tensorir.result import Scheduled
from backends.tensorir.roles import read_roles
from backends.tensorir.stages import dims_of
from partition.access import IMAGE_CONV2D


def emit_open_image_conv2d(func: tirx.PrimFunc, machine: Machine, threads: int) -> Scheduled:
    """Return the loops for images of any size.

    Raises:
        Declined: It has another form.
    """
    roles, nest = read_roles(func), Nest()
    work, _ = sum_over_planes(roles, machine, 1)
    panels = choose_panels(work.extents, machine, threads)
    batch, rows, columns, _ = roles.shape
    _, planes, _, width = dims_of(roles.operands[0])
    row_bytes = width * (4 * planes * Window.from_annotation(roles.attrs["window"]).strides[0])
    grid = grid_of(work, panels, batch, rows, row_bytes, machine=machine, threads=threads).settled(nest)
    work, prologue = sum_over_planes(roles, machine, grid.most_rows)
    emit_open_image(nest, work, panels, grid, width=columns, prologue=prologue, by_lines=True)
    return Scheduled(func.with_body(nest.finish()), IMAGE_CONV2D, f"{grid}; {panels}")
