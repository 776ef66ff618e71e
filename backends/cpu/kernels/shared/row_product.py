"""Rows times packed weights as a contraction."""

from __future__ import annotations

from math import prod

from tvm import tirx
from tvm.ir import Var

from backends.cpu.kernels.shared.arithmetic import arithmetic_of
from backends.cpu.kernels.shared.contraction import Contraction
from backends.cpu.kernels.shared.extents import Extents
from backends.cpu.machine import Machine
from backends.tensorir.accesses import unravel
from backends.tensorir.emit import ramp
from backends.tensorir.extents import typical
from backends.tensorir.roles import Output
from backends.tensorir.stages import dims_of, dtype_of


def rows_times(data: Var, packed: Var, channels: int, outputs: tuple[Output, ...], machine: Machine) -> Contraction:
    """Return the product of the rows of `data`, all leading axes taken together, with packed weights; how many there
    are is typical where it is open."""
    *lead, depth = dims_of(data)
    rows = prod(map(typical, lead))
    arithmetic = arithmetic_of(dtype_of(data), machine)
    extents = Extents(
        outer=1, groups=1, height=rows, width=1, channels=channels, taps=(), depth=depth,
        lanes=machine.vector_lanes, input_bytes=arithmetic.bytes * rows * depth, dtype=arithmetic.dtype,
        step=arithmetic.step, per_cycle=arithmetic.per_cycle, row_pitch=arithmetic.bytes * depth,
    )  # fmt: skip
    return Contraction(
        extents, padded_weights=True, arithmetic=arithmetic,
        load_rows=lambda outer, group, y, x, taps, k: tirx.BufferLoad(data, [*unravel(y, lead), k]),
        load_weights=lambda outer, group, n, taps, step, count: tirx.BufferLoad(
            packed, [tirx.floordiv(n, machine.vector_lanes), step, ramp(0, count)]
        ),
        coordinates=lambda outer, group, y, x, n: [*unravel(y, lead), n],
        outputs=outputs,
    )  # fmt: skip
