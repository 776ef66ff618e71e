"""The kernel of a check, which returns what it has checked.

    for i in values                   LLVM makes vectors of it; in parts, in parallel, where there are many
      failed |= fails(values[i])
      checked[i] = kept(values[i])
    if failed                         never in a run that succeeds
      for i in values
        if fails(values[i]): call_packed("fusion.refuse", what, where, why, values[i], low, high)

The flags of parts that run at a time are put together behind them. Every number of a shape is an int64, as the symbols
are that stand for those that only a call knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import StringImm
from tvm.tirx import ForKind

from backends.tensorir.emit import Nest, int64
from backends.tensorir.flat_buffers import load_flat, store_flat
from backends.tensorir.written import written_func
from fusion.carried_errors import REFUSE
from fusion.guards.conditions import Bounds, Condition, Finite
from fusion.guards.kinds import Guard

Expr = Any  # a TensorIR expression

_SERIAL = 1 << 16
"""Fewer values are checked by one thread: half of them take it as long as starting another (5 us)."""
_PARTS = 64
"""Of more values: a constant, as their number may be one that only a call knows."""


def guard_func(guard: Guard, shape: Sequence[int], dtype: str, kept: str) -> tirx.PrimFunc:
    """Return the kernel that checks values of `shape` and `dtype`, of which readers get the dtype `kept`."""
    dims = [int64(extent) for extent in shape]
    values, checked = tirx.decl_buffer(dims, dtype, "values"), tirx.decl_buffer(dims, kept, "checked")
    return written_func([values, checked], _Loops(guard, values, checked, prod(shape)).emit())


def _fails(condition: Condition, value: Expr) -> Expr:
    """Return whether an int64 or a float32, which may be NaN, does not hold."""
    if isinstance(condition, Finite):
        return _is_endless(value)
    if not isinstance(condition, Bounds):
        return value == int64(0)
    low, high = (tirx.const(bound, value.ty.dtype) for bound in (condition.low, condition.high))
    outside = tirx.any(value < low, value > high)
    return tirx.any(_is_endless(value), outside) if "float" in str(value.ty.dtype) else outside


def _is_endless(value: Expr) -> Expr:
    """Return whether a float32 is NaN or infinite, by its bits: TVM takes comparisons for true that NaN makes false."""
    exponent = tirx.const(0x7F800000, "int32")
    return (tirx.reinterpret("int32", value) & exponent) == exponent


def _kept(condition: Condition, value: Expr) -> Expr:
    """Return what readers get."""
    if isinstance(condition, Bounds) and condition.wrap:
        return tirx.Select(value < int64(0), value + int64(condition.wrap), value)
    return value


@dataclass(frozen=True)
class _Loops:
    guard: Guard
    values: tirx.Buffer
    checked: tirx.Buffer
    size: int

    def emit(self) -> tirx.Stmt:
        nest, rows = Nest(), self.size // len(self.guard.conditions)
        if self.size < _SERIAL:
            failed = self._pass(nest, int64(0), rows)
        else:
            flags = nest.allocate("flags", (_PARTS,), "int32")
            with nest.loop("part", _PARTS, ForKind.PARALLEL) as part:
                first, end = (tirx.floordiv(number * rows, int64(_PARTS)) for number in (part, part + 1))
                nest.store(flags, [part], self._pass(nest, first, end - first))
            failed = self._any(nest, flags, _PARTS)
        with nest.when(failed != 0):
            self._report(nest, rows)
        return nest.finish()

    def _pass(self, nest: Nest, first: Expr, rows: Expr) -> Expr:
        """Emit the check of some rows; return what is not 0 if one of their values fails."""
        failed = nest.allocate("failed", (1,), "int32")
        zero = tirx.const(0, "int32")
        nest.store(failed, [0], zero)
        with nest.loop("row", rows) as row:
            for column, condition in enumerate(self.guard.conditions):
                at = self._place(first + row, column)
                value = nest.bind(f"value{column}", self._load(at))
                failed_here = tirx.Cast("int32", _fails(condition, value))
                nest.store(failed, [0], tirx.BufferLoad(failed, [0]) | failed_here)
                nest.add(store_flat(self.checked, at, _kept(condition, value).astype(self.checked.ty.dtype)))
        return tirx.BufferLoad(failed, [0])

    def _any(self, nest: Nest, flags: tirx.Buffer, parts: int) -> Expr:
        failed = nest.allocate("failed", (1,), "int32")
        nest.store(failed, [0], tirx.const(0, "int32"))
        with nest.loop("part", parts) as part:
            nest.store(failed, [0], tirx.BufferLoad(failed, [0]) | tirx.BufferLoad(flags, [part]))
        return tirx.BufferLoad(failed, [0])

    def _report(self, nest: Nest, rows: int) -> None:
        """Emit the search for the first value that fails; the call raises, and ends the function."""
        with nest.loop("row", rows) as row:
            for column, (condition, why) in enumerate(zip(self.guard.conditions, self.guard.why, strict=True)):
                value = self._load(self._place(row, column))
                with nest.when(_fails(condition, value)):
                    texts = map(StringImm, (self.guard.what, self.guard.where, why))
                    nest.add(tirx.Evaluate(tirx.call_packed(REFUSE, *texts, value, *map(int64, condition.numbers))))

    def _load(self, at: Expr) -> Expr:
        """Return a value, an integer as int64, any other number as float32."""
        wide = "int64" if "int" in str(self.values.ty.dtype) else "float32"
        return load_flat(self.values, at).astype(wide)

    def _place(self, row: Expr, column: int) -> Expr:
        """Return the row-major position of a value."""
        return row * len(self.guard.conditions) + column
