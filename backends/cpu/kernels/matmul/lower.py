"""Matrix multiplication: rows times packed weights, or batches of two activations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import ml_dtypes
import numpy as np
from tvm import relax, te, tirx
from tvm.ir import GenericConst, Var

from backends.cpu import bfloat16
from backends.cpu.kernels.shared.arithmetic import arithmetic_of
from backends.cpu.kernels.shared.blocking import blocking_space
from backends.cpu.kernels.shared.contraction import Blocking, Contraction, emit
from backends.cpu.kernels.shared.extents import Extents
from backends.cpu.kernels.shared.packing import pack_matmul, pack_matmul_pairs
from backends.cpu.machine import Machine
from backends.tensorir.accesses import unravel
from backends.tensorir.emit import Expr, Nest, ramp
from backends.tensorir.result import Scheduled
from backends.tensorir.roles import Output, Roles
from backends.tensorir.space import Space
from backends.tensorir.stages import dtype_of, shape_of
from partition.access import ANCHOR, BATCH_MATMUL, MATMUL

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def lower_matmul(builder: relax.BlockBuilder, call: relax.Call, lanes: int) -> relax.Expr | None:
    """Return `relax.matmul` of float32 operands, or of bfloat16 ones with a result in float32, as an anchor, a constant
    matrix packed; None where it is not one."""
    data, weight = call.args
    shape, other = (tuple(int(extent) for extent in arg.ty.shape) for arg in (data, weight))
    result, *types = (str(part.ty.dtype.dtype) for part in (call, data, weight))
    if result != "float32" or len(shape) < 2 or len(other) < 2 or not prod(shape) * prod(other):
        return None
    if isinstance(weight, GenericConst) and len(other) == 2 and types in (["float32"] * 2, ["bfloat16"] * 2):
        return matmul_of(data, weight.value.numpy(), builder, lanes)
    if types != ["float32"] * 2 and not (types == ["bfloat16"] * 2 and pairs_rows(other)):
        return None
    return builder.call_te(_batches, data, weight, primfunc_name_hint=BATCH_MATMUL)


def pairs_rows(shape: Sequence[int]) -> bool:
    """Return whether the right operand of a product of batches can be of bfloat16: its rows fill vectors."""
    return shape[-1] % bfloat16.LANES == 0


def matmul_of(data: relax.Expr, matrix: np.ndarray, builder: relax.BlockBuilder, lanes: int) -> relax.Expr:
    """Return rows of `data` (..., K) times the constant K x N `matrix`; a 1x1 convolution is one of these."""
    if matrix.dtype == BFLOAT16:
        packed, compute = pack_matmul_pairs(matrix, lanes), _rows_by_pairs
    else:
        packed, compute = pack_matmul(matrix, lanes), _rows_by_weights
    return builder.call_te(compute, data, relax.const(packed), matrix.shape[1], primfunc_name_hint=MATMUL)


def _rows_by_weights(data: te.Tensor, packed: te.Tensor, channels: int) -> te.Tensor:
    k = te.reduce_axis((0, data.shape[-1]), "k")
    lanes = int(packed.shape[-1])

    def sum_over_k(*at: Expr) -> Expr:
        *row, n = at
        return te.sum(data(*row, k) * packed[n // lanes, k, n % lanes], axis=k)

    return te.compute((*data.shape[:-1], channels), sum_over_k, name=MATMUL, attrs={ANCHOR: MATMUL})


def _rows_by_pairs(data: te.Tensor, packed: te.Tensor, channels: int) -> te.Tensor:
    k = te.reduce_axis((0, data.shape[-1]), "k")
    lanes = int(packed.shape[-1]) // 2

    def sum_over_k(*at: Expr) -> Expr:
        *row, n = at
        weight = packed[n // lanes, k // 2, n % lanes * 2 + k % 2]
        return te.sum(data(*row, k).astype("float32") * weight.astype("float32"), axis=k)

    return te.compute((*data.shape[:-1], channels), sum_over_k, name=MATMUL, attrs={ANCHOR: MATMUL})


def _batches(left: te.Tensor, right: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((0, left.shape[-1]), "k")
    batch = _broadcast([int(n) for n in left.shape[:-2]], [int(n) for n in right.shape[:-2]])

    def sum_over_k(*at: Expr) -> Expr:
        *which, m, n = at
        factors = left(*_of(left, which), m, k), right(*_of(right, which), k, n)
        row, weight = factors if left.dtype == "float32" else (factor.astype("float32") for factor in factors)
        return te.sum(row * weight, axis=k)

    shape = (*batch, left.shape[-2], right.shape[-1])
    return te.compute(shape, sum_over_k, name=BATCH_MATMUL, attrs={ANCHOR: BATCH_MATMUL})


def _of(tensor: te.Tensor, batch: Sequence[Expr]) -> list[Expr]:
    """Return the batch indices that a broadcast operand is read at."""
    extents = [int(extent) for extent in tensor.shape[:-2]]
    return broadcast_indices(extents, batch)


def broadcast_indices(extents: Sequence[int], at: Sequence[Expr]) -> list[Expr]:
    """Return the indices of an operand of shape `extents` at the place `at` of the broadcast shape."""
    own = list(at)[len(at) - len(extents) :]
    return [index if extent != 1 else tirx.const(0, index.ty) for extent, index in zip(extents, own, strict=True)]


def _broadcast(left: list[int], right: list[int]) -> tuple[int, ...]:
    return tuple(int(n) for n in np.broadcast_shapes(tuple(left), tuple(right)))


def rows_times(data: Var, packed: Var, channels: int, outputs: tuple[Output, ...], machine: Machine) -> Contraction:
    """Return the product of the rows of `data`, all leading axes taken together, with packed weights."""
    *lead, depth = shape_of(data)
    rows = prod(lead)
    arithmetic = arithmetic_of(dtype_of(data), machine)
    extents = Extents(
        outer=1, groups=1, height=rows, width=1, channels=channels, taps=(), depth=depth,
        lanes=machine.vector_lanes, input_bytes=arithmetic.bytes * rows * depth, step=arithmetic.step,
        per_cycle=arithmetic.per_cycle,
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


@dataclass(frozen=True)
class BatchMatmul:
    """Recipe: see `contraction`; one image per batch, weights read as they lie, k by n."""

    name: str = BATCH_MATMUL

    def space(self, roles: Roles, machine: Machine, threads: int) -> Space[Blocking]:
        """Return the blockings of the product."""
        return blocking_space(self._contraction(roles, machine).extents, machine, threads)

    def emit(self, func: tirx.PrimFunc, roles: Roles, machine: Machine, point: Blocking) -> Scheduled:
        """Return the micro-kernel form of `func`."""
        nest = Nest()
        emit(nest, [self._contraction(roles, machine)], point)
        return Scheduled(func.with_body(nest.finish()), self.name, str(point))

    def _contraction(self, roles: Roles, machine: Machine) -> Contraction:
        """Return what the product tells the emitter about itself."""
        left, right = roles.operands
        *batch, rows, channels = roles.shape
        depth = shape_of(left)[-1]
        left_batch, right_batch = shape_of(left)[:-2], shape_of(right)[:-2]
        arithmetic = arithmetic_of(dtype_of(left), machine, packed=False)
        extents = Extents(
            outer=prod(batch), groups=1, height=rows, width=1, channels=channels, taps=(), depth=depth,
            lanes=machine.vector_lanes, input_bytes=arithmetic.bytes * rows * depth, step=arithmetic.step,
            per_cycle=arithmetic.per_cycle,
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
