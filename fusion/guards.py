"""Checks of values that only the run knows: each is a small kernel that returns what it has checked.

    checked = call_tir(check_index, indices)    negative indices moved to their place, every one inside the axis
    y = take(x, checked)

What reads `checked` runs after the check, and no pass can drop the one without the other. A value that does not hold
raises an ExecutionError through `fusion.module.host_functions`.

    for i in values                   LLVM makes vectors of it; in parts, in parallel, where there are many
      failed |= fails(values[i])
      checked[i] = kept(values[i])
    if failed                         never in a run that succeeds
      for i in values
        if fails(values[i]): call_packed("fusion.refuse", what, where, why, values[i])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.ir import GenericConst, StringImm
from tvm.tirx import ForKind

from backends.cpu.emit import Nest, int64
from backends.cpu.written import written_func

Expr = Any  # a TensorIR expression

REFUSE = "fusion.refuse"
"""What `fusion.module.host_functions` registers: raises the error of a check."""

CHECK = "fusion.check"
"""What it registers too: `check_in_numpy`."""

FROM_ZERO = "fusion.indices_from_zero"
"""Attribute of imported modules in which no index that is data counts from the end, as PyTorch's operators have it."""

_PART = 1 << 15
"""Values of a task: what takes as long as starting one (5 us)."""
_MOST_PARTS = 64


@dataclass(frozen=True)
class Bounds:
    """The integers from `low` to `high`; to negative ones `wrap` is added."""

    low: int
    high: int
    wrap: int = 0

    def fails(self, value: Expr) -> Expr:
        """Return whether an int64 or a float32, which may be NaN, is outside."""
        low, high = (tirx.const(bound, value.ty.dtype) for bound in (self.low, self.high))
        outside = tirx.any(value < low, value > high)
        return tirx.any(_is_endless(value), outside) if "float" in str(value.ty.dtype) else outside

    def kept(self, value: Expr) -> Expr:
        """Return the int64 that readers get."""
        return tirx.Select(value < int64(0), value + int64(self.wrap), value) if self.wrap else value

    @property
    def largest(self) -> int:
        """The largest value that readers get."""
        return max(self.high, self.wrap - 1)

    def hold(self, values: np.ndarray) -> bool:
        """Return whether all of `values` are inside."""
        return not values.size or (self.low <= int(values.min()) and int(values.max()) <= self.high)


class _KeptAsItIs:
    """A test whose readers get the values as they are."""

    largest = 0

    def kept(self, value: Expr) -> Expr:
        """Return the value."""
        return value


class NotZero(_KeptAsItIs):
    """Every integer but 0."""

    def fails(self, value: Expr) -> Expr:
        """Return whether an int64 is 0."""
        return value == int64(0)

    def hold(self, values: np.ndarray) -> bool:
        """Return whether all of `values` are other than 0."""
        return bool(np.all(values != 0))


class Finite(_KeptAsItIs):
    """Every float but NaN and the infinities."""

    def fails(self, value: Expr) -> Expr:
        """Return whether a float32 is none of them."""
        return _is_endless(value)

    def hold(self, values: np.ndarray) -> bool:
        """Return whether all of `values` are finite."""
        return bool(np.isfinite(values).all())


def _is_endless(value: Expr) -> Expr:
    """Return whether a float32 is NaN or infinite, by its bits: TVM takes comparisons for true that NaN makes false."""
    exponent = tirx.const(0x7F800000, "int32")
    return (tirx.reinterpret("int32", value) & exponent) == exponent


Test = Bounds | NotZero | Finite


def entries_of(size: int) -> Bounds:
    """Return the indices of an axis of `size` entries, of which negative ones count from its end."""
    return Bounds(-size, size - 1, size)


@dataclass(frozen=True)
class Guard:
    """What must hold of values.

    Attributes:
        kind: What they are, in a word.
        what, where, why: Of the error, as in FusionError; in `why` the text `{value}` becomes the value that fails.
        tests: Of the values whose position in memory is 0, 1, 2, ... modulo their number.
    """

    kind: str
    what: str
    where: str
    why: tuple[str, ...]
    tests: tuple[Test, ...]


def index_guard(where: str, axes: Sequence[int], shape: Sequence[int], negative: bool = True) -> Guard:
    """Return the guard of indices into `axes` of a tensor of `shape`, of which each in turn has one."""
    sizes = [shape[axis] for axis in axes]
    tests = tuple(entries_of(size) if negative else Bounds(0, size - 1) for size in sizes)
    why = tuple(
        f"axis {axis} has {size} entries: index {{value}} is not in {test.low}..{test.high}"
        if size
        else f"axis {axis} has no entry: there is none at index {{value}}"
        for axis, size, test in zip(axes, sizes, tests, strict=True)
    )
    return Guard("index", "an index is outside its axis", where, why, tests)


def length_guard(where: str, axis: int, size: int) -> Guard:
    """Return the guard of how many entries of an axis of `size` are meant."""
    why = f"axis {axis} has {size} entries: {{value}} is not in 0..{size}"
    return Guard("length", "a length is outside its axis", where, (why,), (Bounds(0, size),))


def size_guard(where: str, axis: int, size: int) -> Guard:
    """Return the guard of how many entries a result has along an axis, which was compiled for `size`."""
    why = f"the model says that axis {axis} of its result has {size} entries, and the run {{value}}"
    return Guard("size", "a result has another size than the model says", where, (why,), (Bounds(size, size),))


def batch_guard(where: str, size: int) -> Guard:
    """Return the guard of which of `size` images something is in."""
    why = (f"there are {size} images: {{value}} is not in 0..{size - 1}",)
    return Guard("image", "an index is outside the batch", where, why, (Bounds(0, size - 1),))


def finite_guard(where: str) -> Guard:
    """Return the guard of coordinates, float32."""
    return Guard("coordinate", "a coordinate is not finite", where, ("it is {value}",), (Finite(),))


def boxes_guard(where: str, images: int) -> Guard:
    """Return the guard of float32 rows of the number of an image and four coordinates."""
    image, (coordinate,) = batch_guard(where, images), finite_guard(where).why
    return Guard("box", "a box is not valid", where, (*image.why, *[coordinate] * 4), (*image.tests, *[Finite()] * 4))


def divisor_guard(where: str) -> Guard:
    """Return the guard of what integers are divided by."""
    return Guard("divisor", "an integer is divided by zero", where, ("the divisor is {value}",), (NotZero(),))


def check(builder: relax.BlockBuilder, values: relax.Expr, guard: Guard) -> relax.Expr:
    """Return `values`, a tensor of known shape, as an expression that the run checks before anything reads it.

    Constants that hold are moved to their place at once. Others keep their check, as the model may never get there.
    """
    shape, dtype = tuple(int(extent) for extent in values.ty.shape), str(values.ty.dtype)
    if 0 in shape:
        return values
    kept = _kept_dtype(dtype, guard)
    if isinstance(values, GenericConst):
        known = _moved(values.value.numpy(), guard)
        if known is not None:
            return relax.const(tvm.runtime.tensor(known.astype(kept)))
    symbol = builder.add_func(_guard_func(guard, shape, dtype, kept), f"check_{guard.kind}")
    return relax.call_tir(symbol, relax.Tuple([values]), relax.TensorType(shape, kept))


def check_in_numpy(
    values: relax.Expr, data: relax.Expr, kind: str, where: str, axes: Sequence[int]
) -> relax.Expr:  # fmt: skip
    """Return `values` as `check` does, where the run alone knows a shape: through a function on the host.

    Args:
        values: Of any shape, what `kind` says: "index", "length", "divisor" or "box".
        data: What `axes` are axes of, as in `GuardOperands`.
    """
    axis_numbers = [tirx.IntImm("int64", axis) for axis in axes]
    texts = StringImm(kind), StringImm(where)
    return relax.op.call_pure_packed(CHECK, values, data, *texts, *axis_numbers, ty_args=values.ty)


def _kept_dtype(dtype: str, guard: Guard) -> str:
    """Return the dtype of what readers get: as it was, unless an index that counts from the start does not fit it."""
    if "int" not in dtype:
        return dtype
    return dtype if np.iinfo(dtype).max >= max(test.largest for test in guard.tests) else "int64"


def _moved(values: np.ndarray, guard: Guard) -> np.ndarray | None:
    """Return the constants that readers get, or None where one fails."""
    wide = "int64" if values.dtype.kind in "iub" else "float32"
    columns: np.ndarray = values.reshape(-1, len(guard.tests)).astype(wide)
    for column, test in zip(columns.T, guard.tests, strict=True):
        if not test.hold(column):
            return None
        if isinstance(test, Bounds):
            column[column < 0] += test.wrap
    return columns.reshape(values.shape)


def _guard_func(guard: Guard, shape: Sequence[int], dtype: str, kept: str) -> tirx.PrimFunc:
    values, checked = tirx.decl_buffer(shape, dtype, "values"), tirx.decl_buffer(shape, kept, "checked")
    loops = _Loops(guard, values, checked, tuple(shape))
    return written_func([values, checked], loops.emit())


@dataclass(frozen=True)
class _Loops:
    guard: Guard
    values: tirx.Buffer
    checked: tirx.Buffer
    shape: tuple[int, ...]

    def emit(self) -> tirx.Stmt:
        nest, rows = Nest(), prod(self.shape) // len(self.guard.tests)
        parts = max(1, min(_MOST_PARTS, prod(self.shape) // _PART))
        if parts == 1:
            failed = self._pass(nest, int64(0), rows)
        else:
            ends = [rows * part // parts for part in range(parts + 1)]
            size = max(end - begin for begin, end in pairwise(ends))
            flags = nest.allocate("flags", (parts,), "int32")
            with nest.loop("part", parts, ForKind.PARALLEL) as part:
                first = part * size
                nest.store(flags, [part], self._pass(nest, first, tirx.min(int64(size), int64(rows) - first)))
            failed = self._any(nest, flags, parts)
        with nest.when(failed != 0):
            self._report(nest, rows)
        return nest.finish()

    def _pass(self, nest: Nest, first: Expr, rows: Expr) -> Expr:
        """Emit the check of some rows; return what is not 0 if one of their values fails."""
        failed = nest.allocate("failed", (1,), "int32")
        zero = tirx.const(0, "int32")
        nest.store(failed, [0], zero)
        with nest.loop("row", rows) as row:
            for column, test in enumerate(self.guard.tests):
                at = self._place(first + row, column)
                value = nest.bind(f"value{column}", self._load(at))
                fails = tirx.Cast("int32", test.fails(value))
                nest.store(failed, [0], tirx.BufferLoad(failed, [0]) | fails)
                nest.store(self.checked, at, test.kept(value).astype(self.checked.ty.dtype))
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
            for column, (test, why) in enumerate(zip(self.guard.tests, self.guard.why, strict=True)):
                value = self._load(self._place(row, column))
                with nest.when(test.fails(value)):
                    texts = map(StringImm, (self.guard.what, self.guard.where, why))
                    nest.add(tirx.Evaluate(tirx.call_packed(REFUSE, *texts, value)))

    def _load(self, at: Sequence[Expr]) -> Expr:
        """Return a value, an integer as int64, any other number as float32."""
        wide = "int64" if "int" in str(self.values.ty.dtype) else "float32"
        return tirx.BufferLoad(self.values, list(at)).astype(wide)

    def _place(self, row: Expr, column: int) -> list[Expr]:
        """Return the indices of a value; TVM joins them again when it makes the buffer flat."""
        flat, indices = row * len(self.guard.tests) + column, []
        for extent in reversed(self.shape):
            indices.append(tirx.floormod(flat, int64(extent)))
            flat = tirx.floordiv(flat, int64(extent))
        return indices[::-1]
