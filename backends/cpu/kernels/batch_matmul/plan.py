"""How a product of batches is cut."""

from __future__ import annotations

from math import prod

from tvm import tirx

from backends.cpu.kernels.batch_matmul.lower import broadcast_indices
from backends.cpu.kernels.shared.arithmetic import FLOAT32, arithmetic_of
from backends.cpu.kernels.shared.contraction import Blocking, Contraction
from backends.cpu.kernels.shared.extents import Extents
from backends.cpu.kernels.shared.packed_blocking import PackedBlocking, in_place_space
from backends.cpu.machine import Machine
from backends.tensorir.accesses import unravel
from backends.tensorir.emit import ramp
from backends.tensorir.roles import Roles
from backends.tensorir.space import Space
from backends.tensorir.stages import dtype_of, shape_of


def batch_matmul_space(roles: Roles, machine: Machine, threads: int) -> Space[Blocking | PackedBlocking]:
    """Return the blockings of the product, of float32 those with copies of the right operand too."""
    return in_place_space(product_of(roles, machine).extents, machine, threads)


def product_of(roles: Roles, machine: Machine) -> Contraction:
    """Return the product as a contraction: one image per batch, weights read as they lie, k by n."""
    left, right = roles.operands
    *batch, rows, channels = roles.shape
    depth = shape_of(left)[-1]
    left_batch, right_batch = shape_of(left)[:-2], shape_of(right)[:-2]
    arithmetic = arithmetic_of(dtype_of(left), machine, packed=False)
    extents = Extents(
        outer=prod(batch), groups=1, height=rows, width=1, channels=channels, taps=(), depth=depth,
        lanes=machine.vector_lanes, input_bytes=arithmetic.bytes * rows * depth, dtype=arithmetic.dtype,
        step=arithmetic.step, per_cycle=arithmetic.per_cycle, row_pitch=arithmetic.bytes * depth,
        weight_pitch=4 * channels if arithmetic is FLOAT32 else None,
    )  # fmt: skip
    return Contraction(
        extents, padded_weights=False, arithmetic=arithmetic,
        load_rows=lambda outer, group, y, x, taps, k: tirx.BufferLoad(
            left, [*broadcast_indices(left_batch, unravel(outer, batch)), y, k]
        ),
        load_weights=lambda outer, group, n, taps, step, count: tirx.BufferLoad(
            right, [*broadcast_indices(right_batch, unravel(outer, batch)), step * arithmetic.step, ramp(n, count)]
        ),
        coordinates=lambda outer, group, y, x, n: [*unravel(outer, batch), y, n],
        outputs=roles.outputs,
    )  # fmt: skip
