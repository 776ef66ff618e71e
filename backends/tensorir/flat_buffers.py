"""Buffers of one dimension, and elements of any buffer by their row-major position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import tvm_ffi
from tvm import tirx
from tvm.ir import Var

from backends.tensorir.emit import Expr, int64
from backends.tensorir.extents import Extent, most
from backends.tensorir.stages import dims_of, dtype_of


def flat_buffer(elements: Extent, dtype: str, name: str) -> Var:
    """Return a new one-dimensional buffer; the caller places the `AllocBuffer`."""
    return tirx.decl_buffer((most(elements, 1),), dtype, name)


@dataclass
class DistinctSizes:
    """Allocates buffers of which no two have the same size, each enlarged by as few elements as that takes.

    Where a loop is the last to read one buffer and the first to write another of the same size, TVM puts both in one
    place. Our loops compute what their last vector shares with the one before twice, then the second time from their
    own result.
    """

    taken: set[int] = field(default_factory=set)

    def allocate(self, elements: Extent, dtype: str, name: str) -> Var:
        """Return a new one-dimensional buffer of at least `elements`; the caller places the `AllocBuffer`."""
        if not isinstance(elements, int):
            return flat_buffer(elements, dtype, name)
        size = tvm_ffi.dtype(dtype).itemsize
        while elements * size in self.taken:
            elements += 1
        self.taken.add(elements * size)
        return flat_buffer(elements, dtype, name)


def position_in(buffer: Var, indices: Sequence[Expr]) -> Expr:
    """Return the row-major position of an element of a buffer."""
    position: Expr = int64(0)
    for extent, index in zip(dims_of(buffer), indices, strict=True):
        position = position * extent + index
    return position


def load_flat(buffer: Var, position: Expr) -> Expr:
    """Return the element at a row-major position of a buffer of any rank."""
    return tirx.BufferLoad(buffer, _flat_indices(buffer, position))


def store_flat(buffer: Var, position: Expr, value: Expr) -> tirx.Stmt:
    """Store `value` at a row-major position; a boolean buffer takes a boolean."""
    if str(value.ty.dtype) != dtype_of(buffer) and "x" not in str(value.ty.dtype):
        value = tirx.Cast(dtype_of(buffer), value)
    return tirx.BufferStore(buffer, value, _flat_indices(buffer, position))


def _flat_indices(buffer: Var, position: Expr) -> list[Expr]:
    """Return indices whose last one carries the whole position: FlattenBuffer makes the same address of it."""
    rank = len(buffer.ty.shape)
    return [int64(0)] * (rank - 1) + [position] if rank else []
