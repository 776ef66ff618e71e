"""2-d convolution of an image that lies plane by plane, N x C x H x W, into N x H x W x O, as a contraction.

A transpose of three channels goes element by element and took as long as the convolution (3x224x224: 135 us). The
micro-kernel reads single elements of the image, so it may as well read them where they are.

Planes are taps, k runs over the window. A padded image is copied into scratch with its border of zeros, the rows of a
task at a time, and beside it lies a table of where each k is under a window. To divide k by the width of the window
takes 28 of the 64 instructions of two steps of six pixels and two vectors: on two threads of Zen 3, whose cores other
machines use, too, 7x7 of stride 2 over 3x224x224 took 2484 us so and takes 1938, on a core alone 1530 and 1454.

The three columns of a 3x3 window as a loop of their own LLVM unrolls, keeps what neighbouring pixels share in
registers, and has too few: 3x111x111x64 took 261 to 771 us, as one loop with the rows 201.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from tvm import tirx
from tvm.ir import Var

from backends.cpu.kernels.shared.contraction import Contraction, Pixel, Prologue
from backends.cpu.kernels.shared.extents import Extents
from backends.cpu.kernels.shared.window import Window
from backends.cpu.machine import Machine
from backends.tensorir.emit import Expr, Nest, int64, ramp, splat, vector_runs
from backends.tensorir.extents import Extent, typical
from backends.tensorir.roles import Roles
from backends.tensorir.stages import dims_of


def planes_extents(roles: Roles, machine: Machine) -> Extents:
    """Return the sizes of the sum, typical ones where they are open: planes are taps, k runs over the window."""
    batch, planes, height, width = (typical(extent) for extent in dims_of(roles.operands[0]))
    kernel = Window.from_annotation(roles.attrs["window"]).kernel
    _, out_height, out_width, channels = (typical(extent) for extent in roles.shape)
    return Extents(
        outer=batch, groups=1, height=out_height, width=out_width, channels=channels, taps=(planes,),
        depth=prod(kernel), lanes=machine.vector_lanes, input_bytes=4 * planes * height * width,
    )  # fmt: skip


def sum_over_planes(roles: Roles, machine: Machine, rows: Extent) -> tuple[Contraction, Prologue | None]:
    """Return the convolution as a contraction, and what copies its padded image for tasks of up to `rows` rows of the
    result."""
    data, packed = roles.operands
    window, lanes = Window.from_annotation(roles.attrs["window"]), machine.vector_lanes
    work = Contraction(
        planes_extents(roles, machine), padded_weights=True,
        load_rows=_rows_from(window, data, 0, lambda n, *place: [n, *place], partial(_divided, window)),
        # k runs over the whole window, past the end of the axis of its columns
        load_weights=lambda n, group, c, taps, step, count: tirx.BufferLoad(
            packed, [tirx.floordiv(c, lanes), *taps, 0, step, ramp(0, count)]
        ),
        coordinates=lambda n, group, y, x, c: [n, y, x, c],
        outputs=roles.outputs,
    )  # fmt: skip
    return work, _PaddedPlanes(data, window, rows, lanes).fill if any(window.padding) else None


def _rows_from(
    window: Window, source: Var, first_row: Expr, place: Callable[[Expr, Expr, Expr, Expr], list[Expr]],
    under: Callable[[Expr], Pixel],
) -> Callable[..., Expr]:  # fmt: skip
    """Return a `load_rows` (see `Contraction`).

    Args:
        place: (image, plane, row, column) -> indices into `source`.
        under: k -> how far below and right of a window's first pixel it lies.
    """

    def load(image: Expr, group: Expr, y: Expr, x: Expr, taps: Sequence[Expr], k: Expr) -> Expr:
        (plane,), (down, right) = taps, under(k)
        row, column = (y - first_row) * window.strides[0] + down, x * window.strides[1] + right
        return tirx.BufferLoad(source, place(image, plane, row, column))

    return load


def _divided(window: Window, k: Expr) -> Pixel:
    (_, columns), (down, right) = window.kernel, window.dilation
    return tirx.floordiv(k, columns) * down, tirx.floormod(k, columns) * right


def _tabulate(nest: Nest, window: Window, pitch: Extent) -> Callable[[Expr], Pixel]:
    """Return an `under` of rows that lie `pitch` elements apart, by a table: all of it is right, past the end of the
    row."""
    (rows, columns), (down, right) = window.kernel, window.dilation
    table = nest.allocate("under_window", (rows * columns,), "int32")
    with nest.loop("ry", rows) as ry, nest.loop("rx", columns) as rx:
        nest.store(table, [ry * columns + rx], (ry * (down * pitch) + rx * right).astype("int32"))
    return lambda k: (int64(0), tirx.BufferLoad(table, [k]).astype("int64"))


@dataclass(frozen=True)
class _PaddedPlanes:
    """Scratch for the rows of the image under one task, zeros around them: [plane][row][left + width + right]."""

    data: Var
    window: Window
    rows: Extent  # output rows of the largest task
    lanes: int

    def fill(self, nest: Nest, image: Expr, first: Expr, end: Expr) -> Callable[..., Expr]:
        """Copy what lies under the output rows first..end-1; return the `load_rows` that reads it."""
        _, planes, height, width = dims_of(self.data)
        top, left, _, right = self.window.padding
        padded = left + width + right
        scratch = nest.allocate("padded", (planes, self.window.rows_under(self.rows), padded))
        with nest.loop("plane", planes) as plane, nest.loop("row", self.window.rows_under(end - first)) as row:
            source = nest.bind("source", first * self.window.strides[0] - top + row)
            for at, lanes in vector_runs(nest, padded, self.lanes):
                nest.store(scratch, [plane, row, ramp(at, lanes)], splat(tirx.const(0, "float32"), lanes))
            with nest.when(tirx.all(source >= 0, source < height)):
                for at, lanes in vector_runs(nest, width, self.lanes):
                    value = tirx.BufferLoad(self.data, [image, plane, source, ramp(at, lanes)])
                    nest.store(scratch, [plane, row, ramp(left + at, lanes)], value)
        under = _tabulate(nest, self.window, padded)
        return _rows_from(self.window, scratch, first, lambda _, *place: list(place), under)
