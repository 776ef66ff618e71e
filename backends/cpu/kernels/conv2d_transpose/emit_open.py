"""A transposed convolution over images of which only a call knows the sizes: the contraction of each pair of strips."""

from __future__ import annotations

from tvm import tirx

from backends.cpu.kernels.conv2d_transpose.emit import sum_of_pair
from backends.cpu.kernels.conv2d_transpose.lower import CONV2D_TRANSPOSE
from backends.cpu.kernels.conv2d_transpose.plan import pairs_of
from backends.cpu.kernels.shared.open_image_contraction import choose_panels, emit_open_image, grid_of
from backends.cpu.machine import Machine
from backends.tensorir.emit import Nest
from backends.tensorir.result import Scheduled
from backends.tensorir.roles import read_roles
from backends.tensorir.stages import dims_of


def emit_open_conv2d_transpose(func: tirx.PrimFunc, machine: Machine, threads: int) -> Scheduled:
    """Return the loops for images of any size.

    Raises:
        Declined: It has another form.
    """
    roles, nest = read_roles(func), Nest()
    pairs = pairs_of(roles, machine.vector_lanes)
    panels = choose_panels(max((pair.extents for pair in pairs), key=lambda extents: extents.steps), machine)
    batch, _, width, depth = dims_of(roles.operands[0])
    for pair in pairs:
        work, _ = sum_of_pair(pair, 1)
        row_bytes = width * (4 * depth)
        grid = grid_of(work, panels, batch, pair.rows.count, row_bytes, machine=machine, threads=threads).settled(nest)
        work, prologue = sum_of_pair(pair, grid.most_rows)
        emit_open_image(nest, work, panels, grid, width=pair.columns.count, prologue=prologue)
    return Scheduled(func.with_body(nest.finish()), CONV2D_TRANSPOSE, f"open images, {len(pairs)} strips; {panels}")
