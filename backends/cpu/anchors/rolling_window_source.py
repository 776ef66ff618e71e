"""The convolution that makes the image under a rolling window, as a contraction of its rows."""

from __future__ import annotations

from dataclasses import replace

from tvm import tirx

from backends.cpu.anchors.contraction import Contraction, Prologue
from backends.cpu.anchors.conv2d import sum_over_taps
from backends.cpu.anchors.image_conv2d import sum_over_planes
from backends.cpu.anchors.matmul import rows_times
from backends.cpu.anchors.roles import Roles
from backends.cpu.templates.stages import shape_of
from fusion.context import Machine
from partition.access import CONV2D, IMAGE_CONV2D


def image_rows(making: Roles, machine: Machine, rows: int) -> tuple[Contraction, Prologue | None]:
    """Return the contraction, over images of N x H x W x C, and what copies its padded input for tasks of up to `rows`
    rows."""
    if making.kind == CONV2D:
        return sum_over_taps(making, machine, rows)
    if making.kind == IMAGE_CONV2D:
        return sum_over_planes(making, machine, rows)
    return _pixels(making, machine), None


def _pixels(making: Roles, machine: Machine) -> Contraction:
    data, panels = making.operands
    batch, height, width, depth = shape_of(data)
    rows = rows_times(data, panels, making.shape[-1], making.outputs, machine)
    size = 4 * height * width * depth
    return replace(
        rows, extents=replace(rows.extents, outer=batch, height=height, width=width, input_bytes=size),
        load_rows=lambda image, group, y, x, taps, k: tirx.BufferLoad(data, [image, y, x, k]),
        coordinates=lambda image, group, y, x, n: [image, y, x, n],
    )  # fmt: skip
