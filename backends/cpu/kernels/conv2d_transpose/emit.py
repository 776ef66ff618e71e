"""Transposed convolution over N, H, W, C activations, as one convolution for each phase of the result.

With stride s, the result's rows y of one phase, those with the same (y + top) mod s, meet the same taps of the kernel,
at neighbouring rows of the input. So each phase is a convolution of stride 1 with its own part of the weights [1], and
no product is with a zero. Phases with equally many taps and pixels are groups of one contraction.

[1] Shi et al., Is the deconvolution layer the same as a convolutional layer?, 2016.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, pairwise, product
from math import gcd

import numpy as np
import numpy.typing as npt
from tvm import relax, te, tirx
from tvm.ir import GenericConst, Var

from backends.cpu.kernels.conv2d_transpose.columns_to_image import columns_to_image
from backends.cpu.kernels.shared.blocking import blocking_space
from backends.cpu.kernels.shared.contraction import Blocking, Contraction, emit
from backends.cpu.kernels.shared.extents import Extents
from backends.cpu.kernels.shared.packing import pack_conv2d
from backends.cpu.kernels.shared.padded_rows import PaddedRows
from backends.cpu.kernels.shared.split import Split
from backends.cpu.kernels.shared.window import Window, read_into
from backends.cpu.machine import Machine
from backends.tensorir.emit import Expr, Nest, ramp
from backends.tensorir.result import Scheduled
from backends.tensorir.roles import Roles
from backends.tensorir.space import Space
from backends.tensorir.stages import shape_of
from partition.access import ANCHOR

CONV2D_TRANSPOSE = "conv2d_transpose"


def lower_conv2d_transpose(builder: relax.BlockBuilder, call: relax.Call, lanes: int) -> relax.Expr | None:
    """Return a channels-last `nn.conv2d_transpose` with constant float32 IOHW weights as an anchor, or, where each
    channel has a kernel of its own, as stages over vectors of channels; None where it is not one."""
    data, weight = call.args
    attrs = call.attrs
    if attrs.data_layout != "NHWC" or attrs.kernel_layout != "IOHW" or not isinstance(weight, GenericConst):
        return None
    if str(call.ty.dtype.dtype) != "float32" or 0 in [int(n) for n in call.ty.shape]:
        return None
    values, groups = weight.value.numpy(), int(attrs.groups)
    window, shape = Window.of(attrs, values.shape[2:]), tuple(int(n) for n in call.ty.shape)
    if groups > 1 and groups == values.shape[0] == shape[3]:
        taps = np.ascontiguousarray(values[:, 0].transpose(1, 2, 0))
        compute = partial(_each_channel, window=window, shape=shape)
        return builder.call_te(compute, data, relax.const(taps), primfunc_name_hint="depthwise_conv2d_transpose")
    if groups == 1 and _fits_in_columns(values, lanes):
        return columns_to_image(builder, data, values, window, shape, lanes)
    packed = _pack(values, groups, window, lanes)
    compute = partial(_convolve, window=window, groups=groups, shape=shape)
    return builder.call_te(compute, data, relax.const(packed), primfunc_name_hint=CONV2D_TRANSPOSE)


def _fits_in_columns(weight: npt.NDArray[np.float32], lanes: int) -> bool:
    """Return whether the taps of all channels fill vectors so much better than those of each tap alone that a pass to
    put them in place pays: 24 to 1 channels, 2x2 taps of stride 2 over 240x240 took 230 us so, 810 by phases."""
    _, channels, height, width = weight.shape
    taps = height * width
    return bool(taps * -(-channels // lanes) >= 2 * -(-taps * channels // lanes))


@dataclass(frozen=True)
class Phase:
    """What the result's positions with one value of (position + padding) mod stride read, along one axis.

    Attributes:
        number: That value.
        taps: Positions in the kernel, in the order of the input's positions that they meet.
        offset: The first tap of the result's position y meets the input's position (y + padding) // stride + offset.
    """

    number: int
    taps: tuple[int, ...]
    offset: int

    @staticmethod
    def all_of(window: Window, axis: int) -> list[Phase]:
        """Return the phases along the height (0) or the width (1); one that no tap meets has none."""
        stride, dilation = window.strides[axis], window.dilation[axis]
        found = []
        for number in range(stride):
            taps = [tap for tap in range(window.kernel[axis]) if (tap * dilation - number) % stride == 0][::-1]
            found.append(Phase(number, tuple(taps), (number - taps[0] * dilation) // stride if taps else 0))
        return found


def _tap_step(window: Window, axis: int) -> int:
    """Return the distance in the input between neighbouring taps of a phase."""
    return window.dilation[axis] // gcd(window.dilation[axis], window.strides[axis])


def _pack(weight: npt.NDArray[np.float32], groups: int, window: Window, lanes: int) -> npt.NDArray[np.float32]:
    """Return IOHW weights as [phase of y, phase of x, groups, ceil(O / lanes), taps, taps, I, lanes], zeros where a
    phase has fewer taps than another."""
    depth, channels, *_ = weight.shape
    by_group = weight.reshape(groups, depth // groups, channels, *window.kernel).transpose(0, 2, 1, 3, 4)
    kernels = by_group.reshape(groups * channels, depth // groups, *window.kernel)  # OIHW
    down, across = Phase.all_of(window, 0), Phase.all_of(window, 1)
    size = [max(1, *(len(phase.taps) for phase in phases)) for phases in (down, across)]
    packed = []
    for rows, columns in product(down, across):
        part = np.zeros((*kernels.shape[:2], *size), weight.dtype)
        part[:, :, : len(rows.taps), : len(columns.taps)] = kernels[:, :, rows.taps][:, :, :, columns.taps]
        packed.append(pack_conv2d(part, groups, lanes))
    return np.stack(packed).reshape(len(down), len(across), *packed[0].shape)


def _convolve(data: te.Tensor, packed: te.Tensor, window: Window, groups: int, shape: tuple[int, ...]) -> te.Tensor:
    _, height, width, _ = (int(n) for n in data.shape)
    rows, columns, depth, lanes = (int(n) for n in packed.shape[4:])
    per_group = shape[3] // groups
    ry, rx, rc = (te.reduce_axis((0, n), name) for n, name in ((rows, "ry"), (columns, "rx"), (depth, "rc")))

    def sum_over_taps(n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        (phase_y, row), (phase_x, column) = (_position(window, axis, at) for axis, at in enumerate((y, x)))
        row, column = row + ry * _tap_step(window, 0), column + rx * _tap_step(window, 1)
        inside = tirx.all(row >= 0, row < height, column >= 0, column < width)
        group, channel = c // per_group, c % per_group
        value = te.if_then_else(inside, data[n, row, column, group * depth + rc], tirx.const(0, "float32"))
        weight = packed[phase_y, phase_x, group, channel // lanes, ry, rx, rc, channel % lanes]
        return te.sum(value * weight, axis=[ry, rx, rc])

    attrs = {ANCHOR: CONV2D_TRANSPOSE, "window": window.annotation()}
    return te.compute(shape, sum_over_taps, name=CONV2D_TRANSPOSE, attrs=attrs)


def _position(window: Window, axis: int, at: Expr) -> tuple[Expr, Expr]:
    """Return the phase of a position of the result, and where its first tap lies in the input."""
    padded, stride = at + window.padding[axis], window.strides[axis]
    offsets = [phase.offset for phase in Phase.all_of(window, axis)]
    return padded % stride, padded // stride + pick(offsets, padded % stride)


def _each_channel(data: te.Tensor, taps: te.Tensor, window: Window, shape: tuple[int, ...]) -> te.Tensor:
    """Return the sum over the taps [KH, KW, C] that meet the input; which those are is the same for all channels."""
    _, height, width, _ = (int(n) for n in data.shape)
    ry, rx = (te.reduce_axis((0, extent), name) for extent, name in zip(window.kernel, ("ry", "rx"), strict=True))

    def sum_over_taps(n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        value = read_into(
            window, (height, width), (y, x), (ry, rx), lambda row, column: data[n, row, column, c] * taps[ry, rx, c]
        )
        return te.sum(value, axis=[ry, rx])

    return te.compute(shape, sum_over_taps, name="depthwise_conv2d_transpose")


def pick(values: Sequence[int], index: Expr) -> Expr:
    """Return `values[index]`."""
    if len(set(values)) == 1:
        return tirx.const(values[0], "int64")
    if len({after - before for before, after in pairwise(values)}) == 1:
        return index * (values[1] - values[0]) + values[0]
    *others, found = (tirx.const(value, "int64") for value in values)
    for position, value in reversed(list(enumerate(others))):
        found = tirx.Select(index == position, value, found)
    return found


@dataclass(frozen=True)
class Strip:
    """Phases along one axis that have equally many taps and positions in the result.

    Attributes:
        numbers: Of the phases.
        first: Position in the result of the first of each.
        start: Position in the input that the first tap meets there.
        count: Positions in the result.
        taps: Taps.
    """

    numbers: tuple[int, ...]
    first: tuple[int, ...]
    start: tuple[int, ...]
    count: int
    taps: int

    @staticmethod
    def all_of(window: Window, axis: int, extent: int) -> list[Strip]:
        """Return the strips of a result of `extent` positions."""
        stride, padding = window.strides[axis], window.padding[axis]
        found = []
        for phase in Phase.all_of(window, axis):
            first = (phase.number - padding) % stride
            count = -(-(extent - first) // stride)
            if count > 0:
                start = (first + padding) // stride + phase.offset
                found.append(Strip((phase.number,), (first,), (start,), count, len(phase.taps)))
        alike = groupby(sorted(found, key=_size), key=_size)
        return [_joined(list(strips)) for _, strips in alike]


def _size(strip: Strip) -> tuple[int, int]:
    return strip.taps, strip.count


def _joined(strips: Sequence[Strip]) -> Strip:
    parts = [(strip.numbers[0], strip.first[0], strip.start[0]) for strip in strips]
    numbers, first, start = zip(*parts, strict=True)
    return replace(strips[0], numbers=numbers, first=first, start=start)


@dataclass(frozen=True)
class _Pair:
    """The contraction of two strips; its groups are their pairs of phases, times the groups of the channels."""

    roles: Roles
    rows: Strip
    columns: Strip
    lanes: int

    def emit(self, nest: Nest, point: Blocking) -> None:
        """Add its loops to `nest`."""
        data, packed = self.roles.operands
        direct = self._rows_from(data, 0, lambda n, row, column: [n, row, 0, column], (0, 0))
        work = Contraction(
            self.extents, padded_weights=True, load_rows=direct,
            load_weights=lambda n, group, c, taps, step, count: tirx.BufferLoad(
                packed, [*self._phases(group), tirx.floordiv(c, self.lanes), *taps, step, ramp(0, count)]
            ),
            coordinates=self._coordinates, outputs=self.roles.outputs,
        )  # fmt: skip
        blocking = self._within(point)
        pad = PaddedRows(data, self._border, blocking.longest_task(self.rows.count), self.lanes)

        def fill(nest: Nest, *task: Expr) -> Callable[..., Expr]:
            origin = (-self._border.padding[0], -self._border.padding[1])
            return self._rows_from(*pad.fill(nest, *task), origin)

        emit(nest, [work], blocking, fill if self._crosses_border else None)

    @property
    def extents(self) -> Extents:
        batch, height, width, channels = shape_of(self.roles.operands[0])
        phases = len(self.rows.numbers) * len(self.columns.numbers)
        return Extents(
            outer=batch, groups=phases * self._groups, height=self.rows.count, width=self.columns.count,
            channels=self.roles.shape[3] // self._groups, taps=(self.rows.taps, self.columns.taps),
            depth=channels // self._groups, lanes=self.lanes, input_bytes=4 * height * width * channels,
        )  # fmt: skip

    @property
    def _groups(self) -> int:
        return shape_of(self.roles.operands[1])[2]

    @property
    def _window(self) -> Window:
        return Window.from_annotation(self.roles.attrs["window"])

    @property
    def _border(self) -> Window:
        """What one position of each strip reads, all phases together, as the window of a convolution of stride 1."""
        _, height, width, _ = shape_of(self.roles.operands[0])
        lowest = min(self.rows.start), min(self.columns.start)
        highest = [max(s.start) + (s.taps - 1) * _tap_step(self._window, axis) for axis, s in enumerate(self._strips)]
        bottom, right = highest[0] + self.rows.count - height, highest[1] + self.columns.count - width
        padding = (-lowest[0], max(0, -lowest[1]), max(0, bottom), max(0, right))
        return Window((highest[0] - lowest[0] + 1, 1), (1, 1), padding, (1, 1))

    @property
    def _strips(self) -> tuple[Strip, Strip]:
        return self.rows, self.columns

    @property
    def _crosses_border(self) -> bool:
        return any(extent > 0 for extent in self._border.padding)

    def _within(self, point: Blocking) -> Blocking:
        """Return `point` with no more chunks of rows than there are tiles of them."""
        tiles = Split.of(self.rows.count, point.tile.height).count
        return replace(point, row_chunks=min(point.row_chunks, tiles))

    def _phases(self, group: Expr) -> tuple[Expr, Expr, Expr]:
        """Return the numbers of the phases of y and x, and the group of channels."""
        down, across, part = self._places(group)
        return pick(self.rows.numbers, down), pick(self.columns.numbers, across), part

    def _places(self, group: Expr) -> tuple[Expr, Expr, Expr]:
        pair, part = tirx.floordiv(group, self._groups), tirx.floormod(group, self._groups)
        return tirx.floordiv(pair, len(self.columns.numbers)), tirx.floormod(pair, len(self.columns.numbers)), part

    def _rows_from(
        self, source: Var, first_row: Expr, place: Callable[[Expr, Expr, Expr], list[Expr]], origin: tuple[int, int]
    ) -> Callable[..., Expr]:
        """Return a `load_rows` (see `Contraction`); `place`: (image, row, column and channel) -> indices into `source`,
        whose first row and column are those of the input at `origin`."""
        channels = shape_of(self.roles.operands[0])[3]
        step_y, step_x = (_tap_step(self._window, axis) for axis in (0, 1))

        def load(n: Expr, group: Expr, y: Expr, x: Expr, taps: Sequence[Expr], k: Expr) -> Expr:
            down, across, part = self._places(group)
            row = y - first_row + (pick(self.rows.start, down) - origin[0]) + taps[0] * step_y
            column = x + (pick(self.columns.start, across) - origin[1]) + taps[1] * step_x
            return tirx.BufferLoad(source, place(n, row, column * channels + part * (channels // self._groups) + k))

        return load

    def _coordinates(self, n: Expr, group: Expr, y: Expr, x: Expr, c: Expr) -> list[Expr]:
        down, across, part = self._places(group)
        row = pick(self.rows.first, down) + y * self._window.strides[0]
        column = pick(self.columns.first, across) + x * self._window.strides[1]
        return [n, row, column, part * (self.roles.shape[3] // self._groups) + c]


def _pairs(roles: Roles, lanes: int) -> list[_Pair]:
    window = Window.from_annotation(roles.attrs["window"])
    strips = (Strip.all_of(window, axis, roles.shape[1 + axis]) for axis in (0, 1))
    return [_Pair(roles, rows, columns, lanes) for rows, columns in product(*strips)]


@dataclass(frozen=True)
class Conv2DTranspose:
    """Recipe: see `contraction`, once for each pair of strips. Where a tap meets what lies outside of the image, the
    rows of a task are copied into scratch with a border of zeros."""

    name: str = CONV2D_TRANSPOSE

    def space(self, roles: Roles, machine: Machine, threads: int) -> Space[Blocking]:
        """Return the blockings of the pair of strips with the most products; the others take the same."""
        pairs = [pair.extents for pair in _pairs(roles, machine.vector_lanes)]
        return blocking_space(max(pairs, key=lambda extents: extents.steps * extents.groups), machine, threads)

    def emit(self, func: tirx.PrimFunc, roles: Roles, machine: Machine, point: Blocking) -> Scheduled:
        """Return `func` in the form of `point`."""
        nest = Nest()
        for pair in _pairs(roles, machine.vector_lanes):
            pair.emit(nest, point)
        return Scheduled(func.with_body(nest.finish()), self.name, str(point))
