"""Transposed convolution over N, H, W, C activations, as one convolution for each phase of the result.

With stride s, the result's rows y of one phase, those with the same (y + top) mod s, meet the same taps of the kernel,
at neighbouring rows of the input. So each phase is a convolution of stride 1 with its own part of the weights [1], and
no product is with a zero. Phases with equally many taps and pixels are groups of one contraction.

[1] Shi et al., Is the deconvolution layer the same as a convolutional layer?, 2016.

The loops are those of `contraction`, once for each pair of strips. Where a tap meets what lies outside of the image,
the rows of a task are copied into scratch with a border of zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tvm import tirx
from tvm.ir import Var

from backends.cpu.kernels.conv2d_transpose.lower import CONV2D_TRANSPOSE
from backends.cpu.kernels.conv2d_transpose.phases import pick, tap_step
from backends.cpu.kernels.conv2d_transpose.plan import Pair, pairs_of
from backends.cpu.kernels.shared.contraction import Blocking, Contraction, Prologue, emit
from backends.cpu.kernels.shared.padded_rows import PaddedRows
from backends.cpu.machine import Machine
from backends.tensorir.emit import Expr, Nest, ramp
from backends.tensorir.extents import Extent
from backends.tensorir.result import Scheduled
from backends.tensorir.roles import Roles
from backends.tensorir.stages import dims_of


def emit_conv2d_transpose(func: tirx.PrimFunc, roles: Roles, machine: Machine, point: Blocking) -> Scheduled:
    """Return `func` in the form of `point`."""
    nest = Nest()
    for pair in pairs_of(roles, machine.vector_lanes):
        _emit_pair(nest, pair, point)
    return Scheduled(func.with_body(nest.finish()), CONV2D_TRANSPOSE, str(point))


def _emit_pair(nest: Nest, pair: Pair, point: Blocking) -> None:
    """Add the loops of a pair."""
    blocking = pair.within(point)
    work, prologue = sum_of_pair(pair, blocking.longest_task(pair.rows.count))
    emit(nest, [work], blocking, prologue)


def sum_of_pair(pair: Pair, rows: Extent) -> tuple[Contraction, Prologue | None]:
    """Return the contraction that a pair is, and what copies its padded input for tasks of up to `rows` rows."""
    data, packed = pair.roles.operands
    direct = _rows_from(pair, data, 0, lambda n, row, column: [n, row, 0, column], (0, 0))
    work = Contraction(
        pair.extents, padded_weights=True, load_rows=direct,
        load_weights=lambda n, group, c, taps, step, count: tirx.BufferLoad(
            packed, [*_phases(pair, group), tirx.floordiv(c, pair.lanes), *taps, step, ramp(0, count)]
        ),
        coordinates=partial(_coordinates, pair), outputs=pair.roles.outputs,
    )  # fmt: skip
    pad = PaddedRows(data, pair.border, rows, pair.lanes)

    def fill(nest: Nest, *task: Expr) -> Callable[..., Expr]:
        origin = (-pair.border.padding[0], -pair.border.padding[1])
        return _rows_from(pair, *pad.fill(nest, *task), origin)

    return work, fill if pair.crosses_border else None


def _phases(pair: Pair, group: Expr) -> tuple[Expr, Expr, Expr]:
    """Return the numbers of the phases of y and x, and the group of channels."""
    down, across, part = _places(pair, group)
    return pick(pair.rows.numbers, down), pick(pair.columns.numbers, across), part


def _places(pair: Pair, group: Expr) -> tuple[Expr, Expr, Expr]:
    """Return which phase of y and of x a group is of, and its group of channels."""
    phases, part = tirx.floordiv(group, pair.groups), tirx.floormod(group, pair.groups)
    across = len(pair.columns.numbers)
    return tirx.floordiv(phases, across), tirx.floormod(phases, across), part


def _rows_from(
    pair: Pair, source: Var, first_row: Expr, place: Callable[[Expr, Expr, Expr], list[Expr]], origin: tuple[int, int]
) -> Callable[..., Expr]:
    """Return a `load_rows` (see `Contraction`); `place`: (image, row, column and channel) -> indices into `source`,
    whose first row and column are those of the input at `origin`."""
    channels = dims_of(pair.roles.operands[0])[3]
    step_y, step_x = (tap_step(pair.window, axis) for axis in (0, 1))

    def load(n: Expr, group: Expr, y: Expr, x: Expr, taps: Sequence[Expr], k: Expr) -> Expr:
        down, across, part = _places(pair, group)
        row = y - first_row + (pick(pair.rows.start, down) - origin[0]) + taps[0] * step_y
        column = x + (pick(pair.columns.start, across) - origin[1]) + taps[1] * step_x
        return tirx.BufferLoad(source, place(n, row, column * channels + part * (channels // pair.groups) + k))

    return load


def _coordinates(pair: Pair, n: Expr, group: Expr, y: Expr, x: Expr, c: Expr) -> list[Expr]:
    down, across, part = _places(pair, group)
    row = pick(pair.rows.first, down) + y * pair.window.strides[0]
    column = pick(pair.columns.first, across) + x * pair.window.strides[1]
    return [n, row, column, part * (pair.roles.shape[3] // pair.groups) + c]
