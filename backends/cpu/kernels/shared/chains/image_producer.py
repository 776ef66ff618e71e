"""The convolution that makes an image inside a kernel, row by row, for what reads it there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from tvm import tirx
from tvm.ir import Var
from tvm.s_tir.stmt import SBlock

from backends.cpu.kernels.shared.chains.kernel_parts import between, in_place
from backends.cpu.kernels.shared.chains.line_buffer import LineBuffer
from backends.cpu.kernels.shared.contraction import Contraction, MicroKernel, Prologue
from backends.cpu.kernels.shared.convolution.sum_over_planes import sum_over_planes
from backends.cpu.kernels.shared.convolution.sum_over_taps import sum_over_taps
from backends.cpu.kernels.shared.register_tile import RegisterTile
from backends.cpu.kernels.shared.row_product import rows_times
from backends.cpu.kernels.shared.window import UnderWindow
from backends.cpu.machine import Machine
from backends.tensorir.emit import Expr, Nest, int64
from backends.tensorir.extents import Extent, typical
from backends.tensorir.roles import Roles, operands_of, roles_of
from backends.tensorir.stages import Stage, dims_of, shape_of
from fusion.declined import Declined
from partition.access import CONV2D, IMAGE_CONV2D


def read_image_producer(stages: Sequence[Stage], block: SBlock, reader: SBlock, image: Var) -> Roles:
    """Return the convolution `block`, whose one output is the `image` that `reader` reads.

    Raises:
        Declined: It reads what the kernel makes, has groups, or the image is no elementwise function of what it
            makes.
    """
    if any(stage.buffer.same_as(operand) for stage in stages for operand in operands_of(block)):
        raise Declined("the convolution reads a value made inside the kernel")
    producer = roles_of(block, (in_place(block, between(stages, None, reader), image),))
    if producer.kind == CONV2D and shape_of(producer.operands[1])[0] != 1:
        raise Declined("a grouped convolution makes the image")
    return producer


def steps_of(producer: Roles) -> int:
    """Return how many products each element of the image is the sum of."""
    data, packed = (dims_of(operand) for operand in producer.operands)
    if producer.kind == CONV2D:
        return prod(packed[2:-1])
    return prod(packed[1:-1]) if producer.kind == IMAGE_CONV2D else int(data[-1])


@dataclass(frozen=True)
class Band:
    """Rows of a result, which a task makes.

    Attributes:
        image: Which one of the batch.
        first, rows: The first of them, and how many there are.
        longest: How many the largest band of all has.
    """

    image: Expr
    first: Expr
    rows: Expr
    longest: Extent


def row_producer(
    nest: Nest, producer: Roles, sizes: UnderWindow, tile: RegisterTile, machine: Machine, band: Band
) -> MicroKernel:
    """Return what emits rows of an image under a window, of which a task needs what lies under a band of the result;
    the padded input of the band is copied first."""
    window = sizes.window
    work, fill = _rows_of(producer, machine, sizes.made_rows(band.longest))
    load_rows = work.load_rows
    if fill is not None:
        start = band.first * window.strides[0] - window.padding[0]
        begin = nest.bind("first_made", tirx.max(start, int64(0)))
        end = nest.bind("end_made", tirx.min(start + window.rows_under(band.rows), int64(sizes.height)))
        load_rows = fill(nest, band.image, begin, end)
    return MicroKernel.inside(nest, work, tile, band.image, load_rows)


def stored_in(lines: LineBuffer, kernel: MicroKernel, place: Expr, first_channel: Expr = 0) -> MicroKernel:
    """Return `kernel` with its one output put into the line buffer, a row of it at `place`, its first channel there
    `first_channel`."""
    (output,) = kernel.epilogue.outputs
    *_, x, channel = output.coordinates
    stored = replace(output, buffer=lines.buffer, indices=(place + x * lines.pixel + (channel - first_channel),))
    return replace(kernel, epilogue=replace(kernel.epilogue, outputs=(stored,)))


def _rows_of(producer: Roles, machine: Machine, rows: Extent) -> tuple[Contraction, Prologue | None]:
    """Return the convolution as a contraction over images of N x H x W x C, and what copies its padded input for tasks
    of up to `rows` rows."""
    if producer.kind == CONV2D:
        return sum_over_taps(producer, machine, rows)
    if producer.kind == IMAGE_CONV2D:
        return sum_over_planes(producer, machine, rows)
    return _pixels(producer, machine), None


def _pixels(producer: Roles, machine: Machine) -> Contraction:
    data, panels = producer.operands
    batch, height, width, depth = map(typical, dims_of(data))
    rows = rows_times(data, panels, producer.shape[-1], producer.outputs, machine)
    size = 4 * height * width * depth
    return replace(
        rows, extents=replace(rows.extents, outer=batch, height=height, width=width, input_bytes=size),
        load_rows=lambda image, group, y, x, taps, k: tirx.BufferLoad(data, [image, y, x, k]),
        coordinates=lambda image, group, y, x, n: [image, y, x, n],
    )  # fmt: skip
