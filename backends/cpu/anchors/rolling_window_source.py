"""The convolution that makes the image under a rolling window, as a contraction of its rows."""

from __future__ import annotations

from tvm import tirx

from backends.cpu.anchors.contraction import Contraction, Prologue
from backends.cpu.anchors.conv2d import sum_over_taps
from backends.cpu.anchors.extents import Extents
from backends.cpu.anchors.image_conv2d import sum_over_planes
from backends.cpu.anchors.roles import Roles
from backends.cpu.emit import ramp
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
    lanes = machine.vector_lanes
    extents = Extents(
        outer=batch, groups=1, height=height, width=width, channels=making.shape[-1], taps=(), depth=depth, lanes=lanes,
        input_bytes=4 * height * width * depth,
    )  # fmt: skip
    return Contraction(
        extents, padded_weights=True,
        load_rows=lambda image, group, y, x, taps, k: tirx.BufferLoad(data, [image, y, x, k]),
        load_weights=lambda image, group, n, taps, k, count: tirx.BufferLoad(
            panels, [tirx.floordiv(n, lanes), k, ramp(0, count)]
        ),
        coordinates=lambda image, group, y, x, n: [image, y, x, n],
        outputs=making.outputs,
    )  # fmt: skip
