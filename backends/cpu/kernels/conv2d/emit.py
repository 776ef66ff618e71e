"""2-d convolution as an implicit matrix multiplication over N, H, W, C activations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from tvm import relax, te, tirx
from tvm.ir import GenericConst, Var

from backends.cpu.kernels.conv2d import winograd
from backends.cpu.kernels.depthwise.emit import has_narrow_groups
from backends.cpu.kernels.matmul.lower import matmul_of
from backends.cpu.kernels.shared.arithmetic import BFLOAT16, FLOAT32, Arithmetic, arithmetic_of
from backends.cpu.kernels.shared.blocking import blocking_space, choose_blocking
from backends.cpu.kernels.shared.contraction import Blocking, Contraction, Prologue, emit
from backends.cpu.kernels.shared.extents import Extents
from backends.cpu.kernels.shared.packing import pack_conv2d, pack_conv2d_pairs
from backends.cpu.kernels.shared.padded_rows import PaddedRows
from backends.cpu.kernels.shared.window import Window, read_under
from backends.cpu.machine import Machine
from backends.tensorir.emit import Expr, Nest, ramp
from backends.tensorir.result import Scheduled
from backends.tensorir.roles import Roles
from backends.tensorir.space import Space
from backends.tensorir.stages import dtype_of, shape_of
from partition.access import ANCHOR, CONV2D


def lower_conv2d(builder: relax.BlockBuilder, call: relax.Call, lanes: int) -> relax.Expr | None:
    """Return a channels-last `nn.conv2d` with constant OIHW weights as an anchor, of float32 or of bfloat16 with a
    result in float32; None where it is not one."""
    data, weight = call.args
    attrs = call.attrs
    if attrs.data_layout != "NHWC" or attrs.kernel_layout != "OIHW" or not isinstance(weight, GenericConst):
        return None
    result, *types = (str(part.ty.dtype.dtype) for part in (call, data, weight))
    if result != "float32" or types not in (["float32"] * 2, ["bfloat16"] * 2) or 0 in [int(n) for n in call.ty.shape]:
        return None
    values = weight.value.numpy()
    window = Window.of(attrs, values.shape[2:])
    if window.is_pointwise and int(attrs.groups) == 1:
        return matmul_of(data, values[:, :, 0, 0].T, builder, lanes)
    groups = int(attrs.groups)
    if types[0] == "bfloat16":
        packed, convolve = pack_conv2d_pairs(values, groups, lanes, window.merges(groups)), _convolve_pairs
    else:
        packed, convolve = pack_conv2d(values, groups, lanes), _convolve
    compute = partial(convolve, channels=values.shape[0], window=window)
    return builder.call_te(compute, data, relax.const(packed), primfunc_name_hint=CONV2D)


def _convolve(data: te.Tensor, packed: te.Tensor, channels: int, window: Window) -> te.Tensor:
    batch, height, width, _ = (int(n) for n in data.shape)
    groups, _, kh, kw, depth, lanes = (int(n) for n in packed.shape)
    per_group = channels // groups
    out_height, out_width = window.output(height, width)
    ry, rx, rc = (te.reduce_axis((0, n), name) for n, name in ((kh, "ry"), (kw, "rx"), (depth, "rc")))

    def sum_over_window(n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        group, channel = c // per_group, c % per_group
        value = read_under(
            window, (height, width), (y, x), (ry, rx), lambda row, column: data[n, row, column, group * depth + rc]
        )
        return te.sum(value * packed[group, channel // lanes, ry, rx, rc, channel % lanes], axis=[ry, rx, rc])

    attrs = {ANCHOR: CONV2D, "window": window.annotation()}
    return te.compute((batch, out_height, out_width, channels), sum_over_window, name=CONV2D, attrs=attrs)


def _convolve_pairs(data: te.Tensor, packed: te.Tensor, channels: int, window: Window) -> te.Tensor:
    batch, height, width, all_channels = (int(n) for n in data.shape)
    groups, lanes = int(packed.shape[0]), int(packed.shape[-1]) // 2
    per_group, depth, merged = channels // groups, all_channels // groups, window.merges(groups)
    out_height, out_width = window.output(height, width)
    (kh, kw), names = window.kernel, ("ry", "rx", "rc")
    ry, rx, rc = (te.reduce_axis((0, n), name) for n, name in zip((kh, kw, depth), names, strict=True))

    def sum_over_window(n: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        group, channel = c // per_group, c % per_group
        value = read_under(
            window, (height, width), (y, x), (ry, rx),
            lambda row, column: data[n, row, column, group * depth + rc].astype("float32"),
        )  # fmt: skip
        tap, k = (0, rx * depth + rc) if merged else (rx, rc)
        weight = packed[group, channel // lanes, ry, tap, k // 2, channel % lanes * 2 + k % 2]
        return te.sum(value * weight.astype("float32"), axis=[ry, rx, rc])

    attrs = {ANCHOR: CONV2D, "window": window.annotation()}
    return te.compute((batch, out_height, out_width, channels), sum_over_window, name=CONV2D, attrs=attrs)


def prefers_bfloat16(call: relax.Call, machine: Machine, threads: int) -> bool:
    """Return whether a float32 `nn.conv2d` with constant weights has a form in bfloat16 that is estimated to take no
    longer than Winograd's in float32."""
    data, weight = call.args
    attrs = call.attrs
    if attrs.data_layout != "NHWC" or attrs.kernel_layout != "OIHW":
        return False
    channels, depth, *kernel = (int(n) for n in weight.ty.shape)
    window, groups, lanes = Window.of(attrs, (kernel[0], kernel[1])), int(attrs.groups), machine.vector_lanes
    if depth < lanes and has_narrow_groups(weight.ty.shape, groups, lanes):
        return False
    image = tuple(int(n) for n in data.ty.shape)
    if groups == 1 and image[3] < lanes:  # the first layer, which reads float32 planes as they lie
        return False
    shape = _winograd_shape(window, image, groups, channels, lanes)
    plan = winograd.plan_winograd(shape, machine, threads) if shape else None
    extents = _extents(window, image, groups, channels, lanes, BFLOAT16)
    return plan is None or choose_blocking(extents, machine, threads).cycles <= plan.cycles


def _extents(
    window: Window, image: Sequence[int], groups: int, channels: int, lanes: int, arithmetic: Arithmetic
) -> Extents:
    """Return the sizes of the sum of a convolution of an N, H, W, C image."""
    batch, height, width, all_channels = image
    (out_height, out_width), (kh, kw) = window.output(height, width), window.kernel
    depth, merged = all_channels // groups, window.merges(groups)
    return Extents(
        outer=batch, groups=groups, height=out_height, width=out_width, channels=channels // groups,
        taps=(kh,) if merged else (kh, kw), depth=kw * depth if merged else depth, lanes=lanes,
        input_bytes=arithmetic.bytes * height * width * all_channels, step=arithmetic.step,
        per_cycle=arithmetic.per_cycle,
    )  # fmt: skip


def _winograd_shape(
    window: Window, image: Sequence[int], groups: int, channels: int, lanes: int
) -> winograd.Shape | None:
    """Return the sizes of a convolution for Winograd's method; None where it is none for it."""
    if not winograd.applies(window.kernel, window.strides, window.dilation, groups):
        return None
    batch, height, width, depth = image
    return winograd.Shape(
        batch, height, width, depth, *window.output(height, width), channels, *window.padding[:2], lanes
    )


@dataclass(frozen=True)
class Conv2D:
    """Recipe: see `contraction`. A padded input is copied row by row into per-task scratch with its border of
    zeros, so that the micro-kernel never asks where it is; the taps of one row and the channels under them are
    contiguous there, one long k."""

    name: str = CONV2D

    def space(self, roles: Roles, machine: Machine, threads: int) -> Space[Blocking | winograd.WinogradPlan]:
        """Return the blockings of the sum, and the plans of Winograd's method where it applies."""
        data, packed = roles.operands
        window, arithmetic = Window.from_annotation(roles.attrs["window"]), arithmetic_of(dtype_of(data), machine)
        sizes = (window, shape_of(data), shape_of(packed)[0], roles.shape[3], machine.vector_lanes)
        sums = blocking_space(_extents(*sizes, arithmetic), machine, threads)
        shape = _winograd_shape(*sizes) if arithmetic is FLOAT32 else None
        best = winograd.plan_winograd(shape, machine, threads) if shape else None
        if shape is None or best is None:
            return Space(sums.default, sums.every)

        def every() -> Iterator[Blocking | winograd.WinogradPlan]:
            yield from sums
            yield from winograd.plans(shape, machine, threads)

        return Space(best if best.cycles < sums.default.cycles else sums.default, every)

    def emit(
        self, func: tirx.PrimFunc, roles: Roles, machine: Machine, point: Blocking | winograd.WinogradPlan
    ) -> Scheduled:
        """Return `func` in the form of `point`."""
        window, data = Window.from_annotation(roles.attrs["window"]), roles.operands[0]
        if isinstance(point, Blocking):
            return self._emit_sum(func, roles, machine, point)
        groups = shape_of(roles.operands[1])[0]
        shape = _winograd_shape(window, shape_of(data), groups, roles.shape[3], machine.vector_lanes)
        assert shape is not None, "a plan comes from its space"
        return winograd.emit_winograd(func, roles, shape, point)

    def _emit_sum(self, func: tirx.PrimFunc, roles: Roles, machine: Machine, blocking: Blocking) -> Scheduled:
        nest = Nest()
        work, fill = sum_over_taps(roles, machine, blocking.longest_task(roles.shape[1]))
        emit(nest, [work], blocking, fill)
        return Scheduled(func.with_body(nest.finish()), self.name, str(blocking))


def sum_over_taps(roles: Roles, machine: Machine, rows: int) -> tuple[Contraction, Prologue | None]:
    """Return the convolution as a contraction, and what copies its padded input for tasks of up to `rows` rows of the
    result."""
    data, packed = roles.operands
    window = Window.from_annotation(roles.attrs["window"])
    all_channels = shape_of(data)[3]
    groups, lanes = shape_of(packed)[0], machine.vector_lanes
    out_channels = roles.shape[3]
    arithmetic, merged = arithmetic_of(dtype_of(data), machine), window.merges(groups)
    load_from = partial(rows_from, window, all_channels, groups)

    def weights(outer: Expr, group: Expr, n: Expr, taps: Sequence[Expr], step: Expr, count: int) -> Expr:
        tap = 0 if merged else taps[1]  # merged: k runs over the taps of a row, past the end of the axis before it
        return tirx.BufferLoad(packed, [group, tirx.floordiv(n, lanes), taps[0], tap, step, ramp(0, count)])

    work = Contraction(
        _extents(window, shape_of(data), groups, out_channels, lanes, arithmetic), padded_weights=True,
        arithmetic=arithmetic, load_rows=load_from(data, 0, lambda n, row, element: [n, row, 0, element]),
        load_weights=weights,
        coordinates=lambda n, group, y, x, c: [n, y, x, group * (out_channels // groups) + c],
        outputs=roles.outputs,
    )  # fmt: skip
    pad = PaddedRows(data, window, rows, lanes * arithmetic.step)
    return work, (lambda *at: load_from(*pad.fill(*at))) if any(window.padding) else None


def rows_from(
    window: Window, channels: int, groups: int, source: Var, first_row: Expr,
    place: Callable[[Expr, Expr, Expr], list[Expr]],
) -> Callable[..., Expr]:  # fmt: skip
    """Return a `load_rows` (see `Contraction`) of padded images whose pixels are `channels` elements apart.

    Args:
        first_row: The row of the result under whose first tap row 0 of `source` lies.
        place: (image, row, element of the row) -> indices into `source`.
    """
    (sh, sw), (dh, dw), merged = window.strides, window.dilation, window.merges(groups)

    def load(outer: Expr, group: Expr, y: Expr, x: Expr, taps: Sequence[Expr], k: Expr) -> Expr:
        row = (y - first_row) * sh + taps[0] * dh
        element = x * (sw * channels) + k + (0 if merged else taps[1] * (dw * channels) + group * (channels // groups))
        return tirx.BufferLoad(source, place(outer, row, element))

    return load
