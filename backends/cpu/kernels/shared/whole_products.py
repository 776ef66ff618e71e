"""Products of numbers that tiles take whole (`tile_products.py`): bytes, exact as all that are of integers, and
bfloat16, summed in float32.

Rows are copied into tiles strip by strip, what a tap's last step lacks as zeros; weights were packed before the run
(`packed_tiles.py`). Without tiles the same strips are multiplied by VPDPBUSD or VDPBF16PS, a word of a row at a time:
four bytes, or two bfloat16.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from tvm import tirx

from backends.cpu import amx, byte_dots
from backends.cpu.kernels.shared.arithmetic import BFLOAT16, Bytes
from backends.cpu.kernels.shared.open_split import ceil_div
from backends.cpu.kernels.shared.tile_products import (
    LANES,
    SUMS,
    Scratch,
    TileBlock,
    TileForm,
    TileProducts,
    TileStrip,
)
from backends.tensorir.emit import Expr, guard, int64, pieces, ramp, splat
from backends.tensorir.stages import dtype_of

_WIDE = 8
"""Vectors that are multiplied together where there are no tiles: enough to hide what an addition takes."""

BYTES_IN_TILES = TileForm(
    numbers=amx.BYTES, arithmetic=Bytes(LANES), row_dtype=byte_dots.LEFT, weight_dtype=byte_dots.RIGHT,
    packed_dtype=byte_dots.RIGHT, strip_steps=8, block_strips=8, few_rows=0, few_strips=8,
)  # fmt: skip
"""L1 holds 16 KiB of rows, L2 a block of weights of 1 MB."""

BFLOAT16_IN_TILES = TileForm(
    numbers=amx.BFLOAT16, arithmetic=BFLOAT16, row_dtype="uint16", weight_dtype="bfloat16", packed_dtype="bfloat16",
    strip_steps=8, block_strips=8, few_rows=256, few_strips=2,
)  # fmt: skip
"""The same sizes. What TVM's passes for bfloat16 make of a buffer of it that is read within a `Bind`, others refuse."""


@dataclass(frozen=True)
class WholeProducts(TileProducts):
    """Products of rows and weights that fill tiles as they are; vectors take denormals of bfloat16 as zero, as tiles
    do."""

    def _prepare(self, scratch: Scratch, block: TileBlock) -> None:
        assert self.packed is not None, "weights that tiles take whole are packed before the run"

    def _fill(self, scratch: Scratch, strip: TileStrip) -> None:
        """Copy a strip of 32 rows into tiles."""
        nest, depth, dtype = self.nest, self.steps.form.numbers.depth, self.steps.form.row_dtype
        with nest.loop("row", strip.block.pixels) as row, nest.loop("step", strip.steps) as step:
            taps, k = self.steps.place(strip.step + step)
            load = partial(self.load_rows, *self._pixel(strip.block.pixel + row), taps)
            to = step * self.steps.form.row_elements + row * depth

            def copy(count: int) -> None:
                for at, lanes in pieces(count, depth):
                    first = load(k + at)
                    *outer, inner = first.indices
                    value = tirx.BufferLoad(first.source, [*outer, ramp(inner, lanes)])
                    if dtype_of(first.source) != dtype:
                        value = tirx.reinterpret(f"{dtype}x{lanes}" if lanes > 1 else dtype, value)
                    nest.store(scratch.left, [ramp(to + at, lanes)], value)

            def copy_rest() -> None:
                nest.store(scratch.left, [ramp(to, depth)], splat(tirx.const(0, dtype), depth))
                copy(self.steps.rest)

            if not self.steps.rest:
                copy(depth)
            elif self.steps.of_tap == 1:
                copy_rest()
            else:
                nest.choose(k + depth <= self.steps.depth, lambda: copy(depth), copy_rest)

    def _by_vector(self, scratch: Scratch, strip: TileStrip) -> None:
        """Add the products of a strip, a row times `_WIDE` vectors at a time; those behind the last are the last, once
        more."""
        nest, here, block, dtype = self.nest, [ramp(int64(0), LANES)], strip.block, self.steps.form.arithmetic.sums
        with nest.loop("row", block.pixels) as row, nest.loop("wide", ceil_div(block.vectors, _WIDE)) as wide:
            vectors = [
                nest.settle("v", tirx.min(int64(wide * _WIDE + place), block.vectors - 1)) for place in range(_WIDE)
            ]
            sums = [block.sums + (v * SUMS + row * LANES) for v in vectors]
            totals = [tirx.BufferLoad(nest.allocate("total", (LANES,), dtype), here) for _ in vectors]
            for total, at in zip(totals, sums, strict=True):
                nest.store(total.source, here, splat(tirx.const(0, dtype), LANES))
                with guard(nest, tirx.Not(block.begins)):
                    nest.store(total.source, here, tirx.BufferLoad(scratch.sums, [ramp(at, LANES)]))
            self._dot(scratch, strip, row, totals, vectors)
            for total, at in zip(totals, sums, strict=True):
                nest.store(scratch.sums, [ramp(at, LANES)], total)

    def _dot(
        self, scratch: Scratch, strip: TileStrip, row: Expr, totals: Sequence[tirx.BufferLoad], vectors: Sequence[Expr]
    ) -> None:  # fmt: skip
        """Add the products of a row of a strip with vectors of the block to totals."""
        assert self.packed is not None, "weights that tiles take whole are packed before the run"
        nest, form, block = self.nest, self.steps.form, strip.block
        arithmetic, together = form.arithmetic, form.arithmetic.step
        with nest.loop("step", strip.steps) as step, nest.loop("part", form.numbers.depth // together) as part:
            at = step * form.row_elements + row * form.numbers.depth + part * together
            left = nest.bind("row_word", arithmetic.row(tirx.BufferLoad(scratch.left, [at]), together))
            for total, v in zip(totals, vectors, strict=True):
                first = self.packed.at(block.strip + strip.index, block.vector + v, step) + part * (LANES * together)
                weights = tirx.BufferLoad(self.packed.memory, [ramp(first, LANES * together)])
                right = arithmetic.weights(weights, together)
                nest.store(total.source, total.indices, arithmetic.multiply_add(total, left, right, LANES))
