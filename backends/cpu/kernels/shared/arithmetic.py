"""What a micro-kernel multiplies and adds in one step of k: single float32 numbers, pairs of bfloat16 or of int16,
or fours of bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tvm import tirx

from backends.cpu import bfloat16, byte_dots
from backends.cpu.costs import BFLOAT16_DOTS_PER_CYCLE, BYTE_DOTS_PER_CYCLE, FMA_PER_CYCLE, PAIR_DOTS_PER_CYCLE
from backends.cpu.machine import Machine
from backends.tensorir.emit import Expr, ramp, splat
from fusion.declined import Declined


class Arithmetic(Protocol):
    """How operands become registers."""

    @property
    def dtype(self) -> str:
        """That of rows."""
        ...

    @property
    def sums(self) -> str:
        """The dtype of sums."""
        ...

    @property
    def functions(self) -> str:
        """The functions in LLVM's language that a kernel needs for it; "" where that is none."""
        ...

    @property
    def step(self) -> int:
        """Elements of k that one multiplication takes."""
        ...

    @property
    def bytes(self) -> int:
        """Bytes of an element."""
        ...

    @property
    def per_cycle(self) -> float:
        """Vectors of multiplications a cycle."""
        ...

    def row(self, first: tirx.BufferLoad, many: int) -> Expr:
        """Return `many` elements of the input, `step` or fewer, from the load of the first, as one scalar."""
        ...

    @property
    def packed(self) -> int:
        """Elements of k that lie next to each other for each channel in a load of weights."""
        ...

    def weights(self, load: tirx.BufferLoad, many: int) -> Expr:
        """Return what `multiply_add` takes for `many` elements of k, from the load of a vector of weights."""
        ...

    def multiply_add(self, total: Expr, row: Expr, weights: Expr, lanes: int) -> Expr:
        """Return `total + row * weights`, vectors of `lanes` sums."""
        ...


@dataclass(frozen=True)
class Float32:
    """A fused multiply-add a step."""

    dtype: str = "float32"
    sums: str = "float32"
    functions: str = ""
    step: int = 1
    packed: int = 1
    bytes: int = 4
    per_cycle: float = FMA_PER_CYCLE

    def row(self, first: tirx.BufferLoad, many: int) -> Expr:
        return first

    def weights(self, load: tirx.BufferLoad, many: int) -> Expr:
        return load

    def multiply_add(self, total: Expr, row: Expr, weights: Expr, lanes: int) -> Expr:
        return total + splat(row, lanes) * weights


@dataclass(frozen=True)
class BFloat16:
    """A dot product of two elements a step, for vectors of 16 sums."""

    dtype: str = "bfloat16"
    sums: str = "float32"
    functions: str = bfloat16.FUNCTIONS
    step: int = 2
    packed: int = 2
    bytes: int = 2
    per_cycle: float = BFLOAT16_DOTS_PER_CYCLE

    def row(self, first: tirx.BufferLoad, many: int) -> Expr:
        return _pair(first, many, "uint32")

    def weights(self, load: tirx.BufferLoad, many: int) -> Expr:
        return tirx.reinterpret(f"uint32x{bfloat16.LANES}", load)

    def multiply_add(self, total: Expr, row: Expr, weights: Expr, lanes: int) -> Expr:
        return bfloat16.dot(total, splat(row, lanes), weights)


def _pair(first: tirx.BufferLoad, many: int, dtype: str) -> Expr:
    """Return two neighbours of 16 bits as one number of `dtype`, or one beside a zero: what lies behind it may be
    nobody's memory, or another row's, where a NaN times a weight of 0 would be NaN."""
    if many == 1:
        return tirx.Cast(dtype, tirx.reinterpret("uint16", first))
    *outer, k = first.indices
    return tirx.reinterpret(dtype, tirx.BufferLoad(first.source, [*outer, ramp(k, 2)]))


@dataclass(frozen=True)
class BFloat16Rows(BFloat16):
    """`BFloat16` on weights as they lie, k by n: pairs are made of two of their rows in registers."""

    packed: int = 1

    def weights(self, load: tirx.BufferLoad, many: int) -> Expr:
        low = _widened(load)
        if many == 1:
            return low
        *outer, k, n = load.indices
        high = _widened(tirx.BufferLoad(load.source, [*outer, k + 1, n]))
        return tirx.bitwise_or(low, tirx.shift_left(high, splat(tirx.const(16, "uint32"), bfloat16.LANES)))


def _widened(load: tirx.BufferLoad) -> Expr:
    return tirx.Cast(f"uint32x{bfloat16.LANES}", tirx.reinterpret(f"uint16x{bfloat16.LANES}", load))


@dataclass(frozen=True)
class Bytes:
    """A dot product of four elements a step, rows in uint8 by weights in int8, for vectors of `lanes` sums."""

    lanes: int
    dtype: str = byte_dots.LEFT
    sums: str = byte_dots.SUMS
    step: int = 4
    packed: int = 4
    bytes: int = 1
    per_cycle: float = BYTE_DOTS_PER_CYCLE

    @property
    def functions(self) -> str:
        return byte_dots.functions(self.lanes)

    def row(self, first: tirx.BufferLoad, many: int) -> Expr:
        *outer, k = first.indices
        if many == self.step:
            return tirx.reinterpret("int32", tirx.BufferLoad(first.source, [*outer, ramp(k, many)]))
        total: Expr = tirx.const(0, "int32")  # what lies behind may be nobody's memory
        for place in range(many):
            element = tirx.Cast("int32", tirx.BufferLoad(first.source, [*outer, k + place]))
            total = tirx.bitwise_or(total, tirx.shift_left(element, tirx.const(8 * place, "int32")))
        return total

    def weights(self, load: tirx.BufferLoad, many: int) -> Expr:
        return tirx.reinterpret(f"int32x{self.lanes}", load)

    def multiply_add(self, total: Expr, row: Expr, weights: Expr, lanes: int) -> Expr:
        return byte_dots.dot(total, splat(row, lanes), weights, lanes)


@dataclass(frozen=True)
class Pairs:
    """A dot product of two elements a step, rows in int16 by weights in int16, or in int8, which a load widens, for
    vectors of `lanes` sums."""

    lanes: int
    dtype: str = byte_dots.PAIR
    sums: str = byte_dots.SUMS
    step: int = 2
    packed: int = 2
    bytes: int = 2
    per_cycle: float = PAIR_DOTS_PER_CYCLE

    @property
    def functions(self) -> str:
        return byte_dots.functions_of_pairs(self.lanes)

    def row(self, first: tirx.BufferLoad, many: int) -> Expr:
        return _pair(first, many, byte_dots.SUMS)

    def weights(self, load: tirx.BufferLoad, many: int) -> Expr:
        return tirx.reinterpret(f"int32x{self.lanes}", tirx.Cast(f"{byte_dots.PAIR}x{2 * self.lanes}", load))

    def multiply_add(self, total: Expr, row: Expr, weights: Expr, lanes: int) -> Expr:
        return byte_dots.dot_pairs(total, splat(row, lanes), weights, lanes)


FLOAT32, BFLOAT16, BFLOAT16_ROWS = Float32(), BFloat16(), BFloat16Rows()


def arithmetic_of(dtype: str, machine: Machine, packed: bool = True) -> Arithmetic:
    """Return how operands of `dtype` are multiplied, weights `packed` or as they lie.

    Raises:
        Declined: The machine has no instruction for it.
    """
    if dtype == "float32":
        return FLOAT32
    if dtype == byte_dots.LEFT and machine.dot_bytes and packed:
        return Bytes(machine.vector_lanes)
    if dtype == byte_dots.PAIR and machine.dot_pairs and packed:
        return Pairs(machine.vector_lanes)
    if dtype != "bfloat16" or not machine.dot_bfloat16:
        raise Declined(f"the CPU has no products of {dtype}")
    return BFLOAT16 if packed else BFLOAT16_ROWS
