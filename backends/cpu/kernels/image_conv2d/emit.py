"""2-d convolution of an image that lies plane by plane, N x C x H x W, into N x H x W x O: a network's first layer.

A transpose of three channels goes element by element and took as long as the convolution (3x224x224: 135 us). The
micro-kernel reads single elements of the image, so it may as well read them where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np
from tvm import relax, te, tirx
from tvm.ir import GenericConst, Var

from backends.cpu.kernels.shared.blocking import blocking_space
from backends.cpu.kernels.shared.contraction import Blocking, Contraction, Prologue, emit
from backends.cpu.kernels.shared.extents import Extents
from backends.cpu.kernels.shared.packing import pack_conv2d
from backends.cpu.kernels.shared.window import Window, read_under
from backends.cpu.machine import Machine
from backends.tensorir.emit import Expr, Nest, ramp, splat, vector_runs
from backends.tensorir.result import Scheduled
from backends.tensorir.roles import Roles
from backends.tensorir.space import Space
from backends.tensorir.stages import shape_of
from partition.access import ANCHOR, IMAGE_CONV2D


def lower_image_conv2d(builder: relax.BlockBuilder, call: relax.Call, lanes: int) -> relax.Expr | None:
    """Return a channels-last `nn.conv2d` of one group, constant float32 OIHW weights, whose image was transposed for it
    and has fewer channels than a vector lanes, as an anchor that reads what was transposed; None where it is none."""
    data, weight = call.args
    attrs = call.attrs
    planes = _transposed(builder, data)
    if (attrs.data_layout, attrs.kernel_layout, int(attrs.groups)) != ("NHWC", "OIHW", 1):
        return None
    if planes is None or not isinstance(weight, GenericConst):
        return None
    if any(str(part.ty.dtype.dtype) != "float32" for part in (call, data)):
        return None
    if int(data.ty.shape[3]) >= lanes or 0 in [int(n) for n in call.ty.shape]:
        return None
    values = weight.value.numpy()
    packed = pack_conv2d(values, 1, lanes)[0].transpose(0, 3, 1, 2, 4)  # [panel, I, KH, KW, lane]
    compute = partial(_convolve, channels=values.shape[0], window=Window.of(attrs, values.shape[2:]))
    constant = relax.const(np.ascontiguousarray(packed))
    return builder.call_te(compute, planes, constant, primfunc_name_hint=IMAGE_CONV2D)


def _transposed(builder: relax.BlockBuilder, data: relax.Expr) -> relax.Expr | None:
    """Return what `data` is the channels-last transpose of."""
    made = builder.lookup_binding(data) if isinstance(data, relax.Var) else None
    if not isinstance(made, relax.Call) or str(getattr(made.op, "name", "")) != "relax.permute_dims":
        return None
    return made.args[0] if [int(axis) for axis in made.attrs.axes or ()] == [0, 2, 3, 1] else None


def _convolve(data: te.Tensor, packed: te.Tensor, channels: int, window: Window) -> te.Tensor:
    batch, planes, height, width = (int(n) for n in data.shape)
    extents = zip((planes, *window.kernel), ("rc", "ry", "rx"), strict=True)
    rc, ry, rx = (te.reduce_axis((0, extent), name) for extent, name in extents)
    lanes = int(packed.shape[-1])

    def sum_over_window(n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        value = read_under(window, (height, width), (y, x), (ry, rx), lambda row, column: data[n, rc, row, column])
        return te.sum(value * packed[c // lanes, rc, ry, rx, c % lanes], axis=[rc, ry, rx])

    attrs = {ANCHOR: IMAGE_CONV2D, "window": window.annotation()}
    shape = (batch, *window.output(height, width), channels)
    return te.compute(shape, sum_over_window, name=IMAGE_CONV2D, attrs=attrs)


@dataclass(frozen=True)
class ImageConv2D:
    """Recipe: see `contraction`; planes are taps, k runs over the window. A padded image is copied into scratch with
    its border of zeros, the rows of a task at a time.

    The three columns of a 3x3 window as a loop of their own LLVM unrolls, keeps what neighbouring pixels share in
    registers, and has too few: 3x111x111x64 took 261 to 771 us, as one loop with the rows 201.
    """

    name: str = IMAGE_CONV2D

    def space(self, roles: Roles, machine: Machine, threads: int) -> Space[Blocking]:
        """Return the blockings of the sum."""
        return blocking_space(_extents(roles, machine), machine, threads)

    def emit(self, func: tirx.PrimFunc, roles: Roles, machine: Machine, point: Blocking) -> Scheduled:
        """Return the micro-kernel form of `func`."""
        nest = Nest()
        work, fill = sum_over_planes(roles, machine, point.longest_task(roles.shape[1]))
        emit(nest, [work], point, fill)
        return Scheduled(func.with_body(nest.finish()), self.name, str(point))


def sum_over_planes(roles: Roles, machine: Machine, rows: int) -> tuple[Contraction, Prologue | None]:
    """Return the convolution as a contraction, and what copies its padded image for tasks of up to `rows` rows of the
    result."""
    data, packed = roles.operands
    window, lanes = Window.from_annotation(roles.attrs["window"]), machine.vector_lanes
    work = Contraction(
        _extents(roles, machine), padded_weights=True,
        load_rows=_rows_from(window, data, 0, lambda n, *place: [n, *place]),
        # k runs over the whole window, past the end of the axis of its columns
        load_weights=lambda n, group, c, taps, step, count: tirx.BufferLoad(
            packed, [tirx.floordiv(c, lanes), *taps, 0, step, ramp(0, count)]
        ),
        coordinates=lambda n, group, y, x, c: [n, y, x, c],
        outputs=roles.outputs,
    )  # fmt: skip
    return work, _PaddedPlanes(data, window, rows, lanes).fill if any(window.padding) else None


def _extents(roles: Roles, machine: Machine) -> Extents:
    batch, planes, height, width = shape_of(roles.operands[0])
    kernel = Window.from_annotation(roles.attrs["window"]).kernel
    _, out_height, out_width, channels = roles.shape
    return Extents(
        outer=batch, groups=1, height=out_height, width=out_width, channels=channels, taps=(planes,),
        depth=prod(kernel), lanes=machine.vector_lanes, input_bytes=4 * planes * height * width,
    )  # fmt: skip


def _rows_from(
    window: Window, source: Var, first_row: Expr, place: Callable[[Expr, Expr, Expr, Expr], list[Expr]]
) -> Callable[..., Expr]:
    """Return a `load_rows` (see `Contraction`); `place`: (image, plane, row, column) -> indices into `source`."""

    def load(image: Expr, group: Expr, y: Expr, x: Expr, taps: Sequence[Expr], k: Expr) -> Expr:
        (plane,), ry, rx = taps, tirx.floordiv(k, window.kernel[1]), tirx.floormod(k, window.kernel[1])
        row = (y - first_row) * window.strides[0] + ry * window.dilation[0]
        column = x * window.strides[1] + rx * window.dilation[1]
        return tirx.BufferLoad(source, place(image, plane, row, column))

    return load


@dataclass(frozen=True)
class _PaddedPlanes:
    """Scratch for the rows of the image under one task, zeros around them: [plane][row][left + width + right]."""

    data: Var
    window: Window
    rows: int  # output rows of the largest task
    lanes: int

    def fill(self, nest: Nest, image: Expr, first: Expr, end: Expr) -> Callable[..., Expr]:
        """Copy what lies under the output rows first..end-1; return the `load_rows` that reads it."""
        _, planes, height, width = shape_of(self.data)
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
        return _rows_from(self.window, scratch, first, lambda _, *place: list(place))
