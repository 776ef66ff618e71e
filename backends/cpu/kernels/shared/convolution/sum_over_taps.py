"""2-d convolution of N x H x W x C images as a contraction: the sum over the taps of its window.

A padded input is copied row by row into per-task scratch with its border of zeros, so that the micro-kernel never asks
where it is; the taps of one row and the channels under them are contiguous there, one long k.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tvm import tirx
from tvm.ir import Var

from backends.cpu.kernels.shared.arithmetic import Arithmetic, arithmetic_of
from backends.cpu.kernels.shared.contraction import Contraction, Prologue
from backends.cpu.kernels.shared.extents import Extents
from backends.cpu.kernels.shared.padded_rows import PaddedRows
from backends.cpu.kernels.shared.window import Window
from backends.cpu.machine import Machine
from backends.tensorir.emit import Expr, ramp
from backends.tensorir.extents import Extent, typical
from backends.tensorir.roles import Roles
from backends.tensorir.stages import dims_of, dtype_of, shape_of


def taps_extents(
    window: Window, image: Sequence[int], groups: int, channels: int, lanes: int, arithmetic: Arithmetic
) -> Extents:
    """Return the sizes of the sum of a convolution of an N, H, W, C image."""
    batch, height, width, all_channels = image
    (out_height, out_width), (kh, kw) = window.output(height, width), window.kernel
    depth, merged = all_channels // groups, window.merges(groups)
    return Extents(
        outer=batch, groups=groups, height=out_height, width=out_width, channels=channels // groups,
        taps=(kh,) if merged else (kh, kw), depth=kw * depth if merged else depth, lanes=lanes,
        input_bytes=arithmetic.bytes * height * width * all_channels, dtype=arithmetic.dtype, step=arithmetic.step,
        per_cycle=arithmetic.per_cycle, row_pitch=arithmetic.bytes * window.strides[1] * all_channels,
    )  # fmt: skip


def extents_of_sum(roles: Roles, machine: Machine, image: Sequence[int] | None = None) -> Extents:
    """Return the sizes of the sum that a convolution is over an image of this shape; None: of the data, typical where
    it is open."""
    data, packed = roles.operands
    return taps_extents(
        Window.from_annotation(roles.attrs["window"]), image or [typical(extent) for extent in dims_of(data)],
        groups=shape_of(packed)[0], channels=roles.shape[3], lanes=machine.vector_lanes,
        arithmetic=arithmetic_of(dtype_of(data), machine),
    )  # fmt: skip


def sum_over_taps(roles: Roles, machine: Machine, rows: Extent) -> tuple[Contraction, Prologue | None]:
    """Return the convolution as a contraction, and what copies its padded input for tasks of up to `rows` rows of the
    result."""
    data, packed = roles.operands
    window, all_channels = Window.from_annotation(roles.attrs["window"]), dims_of(data)[3]
    groups, lanes = shape_of(packed)[0], machine.vector_lanes
    out_channels = roles.shape[3]
    arithmetic, merged = arithmetic_of(dtype_of(data), machine), window.merges(groups)
    load_from = partial(rows_from, window, all_channels, groups)

    def weights(outer: Expr, group: Expr, n: Expr, taps: Sequence[Expr], step: Expr, count: int) -> Expr:
        tap = 0 if merged else taps[1]  # merged: k runs over the taps of a row, past the end of the axis before it
        return tirx.BufferLoad(packed, [group, tirx.floordiv(n, lanes), taps[0], tap, step, ramp(0, count)])

    work = Contraction(
        extents_of_sum(roles, machine), padded_weights=True, arithmetic=arithmetic,
        load_rows=load_from(data, 0, lambda n, row, element: [n, row, 0, element]),
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
