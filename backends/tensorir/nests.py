"""Small constructors of TensorIR statements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Var

from backends.tensorir.stages import dtype_of

Expr = Any
Body = Callable[[Var], tirx.Stmt]


def index(value: int) -> Expr:
    """Return an int64 constant."""
    return tirx.const(value, "int64")


def loop(
    extent: Expr | int, body: Body, *, kind: int = tirx.ForKind.SERIAL, name: str = "i", begin: Expr | int = 0
) -> tirx.Stmt:
    """Return a loop over [begin, begin + extent); a loop of one iteration is its body alone."""
    var = tirx.Var(name, "int64")
    first = index(begin) if isinstance(begin, int) else begin
    if isinstance(extent, int) and extent == 1 and kind != tirx.ForKind.VECTORIZED:
        return sequence(tirx.Bind(var, first), body(var))
    return tirx.For(var, first, index(extent) if isinstance(extent, int) else extent, kind, body(var))


def unrolled(extent: int, body: Body) -> tirx.Stmt:
    """Return a loop that is unrolled."""
    return loop(extent, body, kind=tirx.ForKind.UNROLLED, name="u")


def vectorized(lanes: int, body: Body) -> tirx.Stmt:
    """Return a loop whose iterations are the lanes of one vector; one lane is plain code."""
    if lanes == 1:
        return loop(1, body, name="v")
    return loop(lanes, body, kind=tirx.ForKind.VECTORIZED, name="v")


def sequence(*statements: tirx.Stmt) -> tirx.Stmt:
    """Return the statements one after the other, flat."""
    flat: list[tirx.Stmt] = []
    for statement in statements:
        flat.extend(statement.seq if isinstance(statement, tirx.SeqStmt) else [statement])
    return flat[0] if len(flat) == 1 else tirx.SeqStmt(flat)


def allocate(elements: int, dtype: str, name: str) -> Var:
    """Return a new one-dimensional buffer; the caller places the `AllocBuffer`."""
    return tirx.decl_buffer((max(elements, 1),), dtype, name)


@dataclass
class DistinctSizes:
    """Allocates buffers of which no two have the same size, each enlarged by as few elements as that takes.

    Where a loop is the last to read one buffer and the first to write another of the same size, TVM puts both in one
    place. Our loops compute what their last vector shares with the one before twice, then the second time from their
    own result.
    """

    taken: set[int] = field(default_factory=set)

    def allocate(self, elements: int, dtype: str, name: str) -> Var:
        """Return a new one-dimensional buffer of at least `elements`; the caller places the `AllocBuffer`."""
        size = tvm_ffi.dtype(dtype).itemsize
        while elements * size in self.taken:
            elements += 1
        self.taken.add(elements * size)
        return allocate(elements, dtype, name)


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
    return [index(0)] * (rank - 1) + [position] if rank else []


def bound(bindings: Sequence[tuple[Var, Expr]], statement: tirx.Stmt) -> tirx.Stmt:
    """Return `statement` after the variables it uses."""
    return sequence(*(tirx.Bind(var, value) for var, value in bindings), statement)
