"""Products of float32 as products of bfloat16 terms, in tiles (`tile_products.py`).

Weights are split into terms before the run (`packed_tiles.py`), or by each task, rows strip by strip. Infinities and
NaN have no such terms. Where one is among the rows or the weights, a strip is multiplied element by element, in
float32.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from math import prod

from tvm import tirx
from tvm.ir import Var

from backends.cpu import amx
from backends.cpu.kernels.shared.arithmetic import FLOAT32
from backends.cpu.kernels.shared.open_split import ceil_div
from backends.cpu.kernels.shared.plain_steps import WIDE, PlainSteps, StepCall
from backends.cpu.kernels.shared.tile_products import (
    LANES,
    SUMS,
    Scratch,
    TileBlock,
    TileForm,
    TileProducts,
    TileStrip,
)
from backends.tensorir.emit import Expr, Nest, int64, pieces, ramp, splat

STRIP_STEPS = 4
"""Of a strip, of which L1 holds the terms of 32 rows: 24 KiB."""

FLOAT32_TERMS = TileForm(
    numbers=amx.TERMS, arithmetic=FLOAT32, row_dtype="uint16", weight_dtype="uint32", packed_dtype="float32",
    strip_steps=STRIP_STEPS, block_strips=6, few_rows=512, few_strips=2,
)  # fmt: skip

_PAIRS = amx.DEPTH // 2
_SIZE, _INFINITE = 0x7FFFFFFF, 0x7F800000
"""Of the bits of a float32: those of its size, and those of an infinite one, which a NaN has
more than."""


@dataclass(frozen=True)
class _Finite:
    """Whether the numbers seen so far are finite.

    Attributes:
        largest: The bits of the largest size in each lane.
    """

    largest: Var

    @staticmethod
    def allocate(nest: Nest, name: str) -> _Finite:
        """Return what has seen no number."""
        largest = nest.allocate(name, (LANES,), "uint32")
        nest.store(largest, [ramp(0, LANES)], splat(tirx.const(0, "uint32"), LANES))
        return _Finite(largest)

    @property
    def first(self) -> tirx.BufferLoad:
        """The load of the first lane."""
        return tirx.BufferLoad(self.largest, [int64(0)])

    def see(self, nest: Nest, value: Expr, lanes: int) -> None:
        """Look at a vector of numbers."""
        size = tirx.bitwise_and(_bits(value, lanes), splat(tirx.const(_SIZE, "uint32"), lanes))
        here = [ramp(int64(0), lanes)]
        nest.store(self.largest, here, tirx.max(tirx.BufferLoad(self.largest, here), size))

    def holds(self, nest: Nest, name: str) -> Expr:
        """Return whether all are, as it is where `nest` stands."""
        vector = tirx.BufferLoad(self.largest, [ramp(int64(0), LANES)])
        largest = nest.keep(name, tirx.call_llvm_pure_intrin("uint32", "llvm.vector.reduce.umax", vector))
        return largest < tirx.const(_INFINITE, "uint32")


@dataclass(frozen=True)
class TermProducts(TileProducts):
    """Products of float32."""

    def _prepare(self, scratch: Scratch, block: TileBlock) -> Expr:
        """Return whether the weights are finite, which a task splits where they were not packed."""
        if self.packed is None:
            return self._split_weights(scratch, block)
        return self.packed.are_finite()

    def _fill(self, scratch: Scratch, strip: TileStrip) -> Expr:
        """Return whether the rows are finite."""
        seen = _Finite.allocate(self.nest, "rows_seen")
        self._split_rows(scratch, strip, seen)
        return seen.holds(self.nest, "row")

    def _by_vector(self, scratch: Scratch, strip: TileStrip) -> None:
        """Add the products of float32 as they are, a row times `WIDE` vectors at a time."""
        nest, block, function = self.nest, strip.block, PlainSteps(of_terms=self.packed is not None)
        nest.call_functions(function.llvm_ir, finished=True)
        with (
            nest.loop("row", block.pixels) as row,
            nest.loop("wide", ceil_div(block.vectors, WIDE)) as wide,
            nest.loop("step", strip.steps) as step,
        ):
            taps, k = self.steps.place(strip.step + step)
            first = wide * WIDE
            depth = tirx.min(self.steps.depth - k, int64(amx.DEPTH)) if self.steps.rest else amx.DEPTH
            weights, apart = self._weights(strip, first, step)
            at = StepCall(
                vectors=block.vectors - first, weights_apart=apart, sums_apart=SUMS, depth=depth,
                clears=tirx.Cast("int64", tirx.all(block.begins, step == 0)),
            )  # fmt: skip
            rows = self.load_rows(*self._pixel(block.pixel + row), taps, k)
            sums = tirx.BufferLoad(scratch.sums, [block.sums + first * SUMS + row * LANES])
            nest.add(function.call(at, rows, weights, sums))

    def _weights(self, strip: TileStrip, v: Expr, step: Expr) -> tuple[tirx.BufferLoad, Expr]:
        """Return the load of the first weight of a vector of the block in a step, and how many elements behind it those
        of the next vector are."""
        vector = strip.block.vector + v
        if self.packed:
            at = self.packed.at(strip.block.strip + strip.index, vector, step)
            return tirx.BufferLoad(self.packed.memory, [at]), self.steps.form.strip_elements
        taps, k = self.steps.place(strip.step + step)
        return self.load_weights(vector * LANES, taps, k, 1), prod(self.steps.taps) * self.steps.depth * LANES

    def _split_weights(self, scratch: Scratch, block: TileBlock) -> Expr:
        """Add the split of a block's weights; return whether they are finite."""
        nest, depth, right = self.nest, self.steps.depth, scratch.right
        assert right is not None, "weights are split into scratch"
        seen = _Finite.allocate(nest, "weights_seen")
        begin = block.strip * STRIP_STEPS
        with (
            nest.loop("v", block.vectors) as v,
            nest.loop("step", tirx.min(block.strips * STRIP_STEPS, self.steps.count - begin)) as step,
        ):
            taps, k = self.steps.place(begin + step)
            strip, inside = tirx.floordiv(step, STRIP_STEPS), tirx.floormod(step, STRIP_STEPS)
            to = right.at(strip, v, inside)
            load = partial(self.load_weights, (block.vector + v) * LANES, taps)

            def split(pairs: int) -> None:
                terms = tirx.BufferLoad(right.memory, [to])
                nest.add(amx.split_weights(load(k, 1), terms, seen.first, int64(pairs)))

            def put(pair: Expr, words: Iterable[Expr]) -> None:
                for term, word in enumerate(words):
                    nest.store(right.memory, [ramp(to + (pair + term * _PAIRS) * LANES, LANES)], word)

            def split_rest() -> None:
                pairs, odd = divmod(self.steps.rest, 2)
                if pairs:
                    split(pairs)
                if odd:
                    weights = nest.bind("weights", load(k + 2 * pairs, LANES))
                    seen.see(nest, weights, LANES)
                    put(int64(pairs), (_halves(term, LANES) for term in _terms(nest, weights, LANES)))
                with nest.loop("pair", _PAIRS - pairs - odd) as pair:
                    put(pair + pairs + odd, [splat(tirx.const(0, "uint32"), LANES)] * amx.TERM_COUNT)

            if not self.steps.rest:
                split(_PAIRS)
            elif self.steps.of_tap == 1:
                split_rest()
            else:
                nest.choose(k + amx.DEPTH <= depth, lambda: split(_PAIRS), split_rest)
        return seen.holds(nest, "weight")

    def _split_rows(self, scratch: Scratch, strip: TileStrip, seen: _Finite) -> None:
        """Add the split of a strip of 32 rows."""
        nest = self.nest
        with nest.loop("row", strip.block.pixels) as row, nest.loop("step", strip.steps) as step:
            taps, k = self.steps.place(strip.step + step)
            load = partial(self.load_rows, *self._pixel(strip.block.pixel + row), taps)
            to = step * self.steps.form.row_elements + row * amx.DEPTH

            def split_whole() -> None:
                nest.add(amx.split_row(load(k), tirx.BufferLoad(scratch.left, [to]), seen.first))

            def split_rest() -> None:
                for at, lanes in pieces(self.steps.rest, LANES):
                    first = load(k + at)
                    *outer, inner = first.indices
                    value = nest.bind("part", tirx.BufferLoad(first.source, [*outer, ramp(inner, lanes)]))
                    seen.see(nest, value, lanes)
                    put(at, lanes, (_halves(term, lanes) for term in _terms(nest, value, lanes)))
                for at, lanes in pieces(amx.DEPTH - self.steps.rest, LANES):
                    put(self.steps.rest + at, lanes, [splat(tirx.const(0, "uint32"), lanes)] * amx.TERM_COUNT)

            def put(at: int, lanes: int, words: Iterable[Expr]) -> None:
                for term, word in enumerate(words):
                    place = ramp(to + (term * amx.ROWS * amx.DEPTH + at), lanes)
                    nest.store(scratch.left, [place], tirx.Cast(_vector("uint16", lanes), word))

            if not self.steps.rest:
                split_whole()
            elif self.steps.of_tap == 1:
                split_rest()
            else:
                nest.choose(k + amx.DEPTH <= self.steps.depth, split_whole, split_rest)


def _terms(nest: Nest, value: Expr, lanes: int) -> Iterator[Expr]:
    """Yield the terms of a vector of float32, in the high halves of words."""
    high = splat(_high(), lanes)
    for place in range(amx.TERM_COUNT):
        term = nest.bind("term", tirx.bitwise_and(_bits(value, lanes), high))
        yield term
        if place < amx.TERM_COUNT - 1:
            value = nest.bind("behind", value - tirx.reinterpret(_vector("float32", lanes), term))


def _halves(term: Expr, lanes: int) -> Expr:
    """Return the high halves of words, as words."""
    return tirx.shift_right(term, splat(tirx.const(16, "uint32"), lanes))


def _high() -> Expr:
    return tirx.const(amx.TERM_BITS, "uint32")


def _bits(value: Expr, lanes: int) -> Expr:
    return tirx.reinterpret(_vector("uint32", lanes), value)


def _vector(dtype: str, lanes: int) -> str:
    return f"{dtype}x{lanes}" if lanes > 1 else dtype
