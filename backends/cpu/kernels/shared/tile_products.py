"""Products in tiles of AMX (`backends/cpu/amx.py`), whatever the numbers are.

What a task of a contraction becomes whose blocking is `in_tiles`:

    for block of vectors                            of up to 1024 rows, where there are several blocks of k
      for block of k
        [prepare weights]                           of both blocks, which L2 holds
        for 32 rows
          for strip of k
            fill tiles with rows                    theirs, which L1 holds
            for vector
              sums[32 rows, vector] += rows x weights
              [fetch a part of the next block of weights, of the rows that are filled next, and, in the last strip, of
               the result]
          outputs = epilogue(sums)                  behind the last block of k

Where Linux grants no tiles, a strip is multiplied in vectors. How that is done, how rows become tiles and in what order
weights lie is what a kind of numbers says: `term_products.py`, `whole_products.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

import numpy as np
from tvm import tirx
from tvm.ir import Var

from backends.cpu import amx
from backends.cpu.costs import CACHE_LINE
from backends.cpu.kernels.shared.arithmetic import Arithmetic
from backends.cpu.kernels.shared.epilogue import Epilogue
from backends.cpu.kernels.shared.open_split import OpenSplit, ceil_div
from backends.cpu.kernels.shared.split import Split
from backends.tensorir.accesses import unravel
from backends.tensorir.emit import Expr, Nest, guard, int64, pieces
from backends.tensorir.stages import dtype_of

BLOCK_VECTORS = 16
"""Of a block of weights, which L2 holds: 1.2 MB of terms."""

LANES = amx.COLUMNS
SUMS = amx.ROWS * amx.COLUMNS
"""Of 32 rows and a vector."""

_KEPT = 32
"""Times 32 rows, whose sums of a block of vectors are kept between blocks of k: 1 MB."""


@dataclass(frozen=True)
class TileForm:
    """How numbers of a kind lie in tiles.

    Attributes:
        numbers: What AMX is told of them.
        arithmetic: What vectors multiply these numbers by.
        row_dtype, weight_dtype: Of both operands in memory.
        packed_dtype: Of weights that were packed before the run, by name.
        strip_steps: Steps of k of a strip, of which L1 holds 32 rows.
        block_strips: Strips of a block of k, which L2 holds.
        few_rows: Tasks of so many rows and fewer wait for weights, and fetch each block with the one before.
        few_strips: Strips of a block of k of theirs, of which L2 holds two, and sums besides.
    """

    numbers: amx.Numbers
    arithmetic: Arithmetic
    row_dtype: str
    weight_dtype: str
    packed_dtype: str
    strip_steps: int
    block_strips: int
    few_rows: int
    few_strips: int

    @property
    def row_elements(self) -> int:
        """Of 32 rows and a step."""
        return self.numbers.row_bytes // bytes_of(self.row_dtype)

    @property
    def weight_elements(self) -> int:
        """Of a vector and a step."""
        return self.numbers.weight_bytes // bytes_of(self.weight_dtype)

    @property
    def strip_elements(self) -> int:
        """Of a vector and a strip."""
        return self.strip_steps * self.weight_elements


def bytes_of(dtype: str) -> int:
    """Return the bytes of an element."""
    return int(np.dtype(dtype).itemsize)


@dataclass(frozen=True)
class TileSteps:
    """Steps of k of all taps, one tap's after another's.

    Attributes:
        taps: Extents of the window loops.
        depth: Elements of k of a tap, whose last step may be less than whole.
        form: What a step is.
    """

    taps: tuple[int, ...]
    depth: int
    form: TileForm

    @property
    def of_tap(self) -> int:
        """Those of a tap."""
        return -(-self.depth // self.form.numbers.depth)

    @property
    def count(self) -> int:
        """All of them."""
        return prod(self.taps) * self.of_tap

    @property
    def strips(self) -> int:
        """In how many strips they are."""
        return -(-self.count // self.form.strip_steps)

    @property
    def rest(self) -> int:
        """Elements of a tap's last step where that is less than whole, 0 where it is whole."""
        return self.depth % self.form.numbers.depth

    def place(self, step: Expr) -> tuple[list[Expr], Expr]:
        """Return the taps of a step, and its first element of k."""
        depth = self.form.numbers.depth
        if prod(self.taps) == 1:
            return [int64(0) for _ in self.taps], step * depth
        tap = tirx.floordiv(step, self.of_tap)
        return unravel(tap, self.taps), tirx.floormod(step, self.of_tap) * depth


NOT_FINITE = 1
"""The word behind packed weights one of which is not finite. No other word says so: what is measured is often filled
with bytes that stand for no weights (`tuning/filled_tensors.py`), and has to take the way of finite ones."""


@dataclass(frozen=True)
class TileWeights:
    """Weights in the order of tiles: [strip][vector][step][...].

    Attributes:
        memory: Them; where they were packed before the run (`packed_tiles.py`), with a vector behind them that says
            whether they may be multiplied in tiles.
        vectors: Of a strip.
        steps: Of k.
    """

    memory: Var
    vectors: int
    steps: TileSteps

    @staticmethod
    def size(vectors: int, steps: TileSteps) -> int:
        """Return how many elements all are, without the vector behind them."""
        return steps.strips * vectors * steps.form.strip_elements

    @staticmethod
    def declare(name: str, vectors: int, steps: TileSteps) -> TileWeights:
        """Return weights that were packed."""
        size = TileWeights.size(vectors, steps) + LANES
        return TileWeights(tirx.decl_buffer((size,), steps.form.packed_dtype, name), vectors, steps)

    def are_finite(self) -> Expr:
        """Return what packed weights say: whether all are finite."""
        word = tirx.BufferLoad(self.memory, [int64(TileWeights.size(self.vectors, self.steps))])
        return tirx.reinterpret("uint32", word) != tirx.const(NOT_FINITE, "uint32")

    def at(self, strip: Expr, vector: Expr, step: Expr = 0) -> Expr:
        """Return where a step of a strip begins."""
        form = self.steps.form
        return (strip * self.vectors + vector) * form.strip_elements + step * form.weight_elements


@dataclass(frozen=True)
class Scratch:
    """Memory of a task.

    Attributes:
        left: A strip of 32 rows, step by step.
        right: A block of weights that the task prepares; None where they were packed.
        sums: [32 rows][vector][row][channel].
        vectors: Of a block, at most.
    """

    left: Var
    right: TileWeights | None
    sums: Var
    vectors: int


@dataclass(frozen=True)
class Later:
    """The part of the next block of weights that is fetched with 32 rows of a block.

    Attributes:
        vector, strip: The first of that block.
        apart: Bytes from one line that is fetched to the next; 0 where nothing is.
        row: Which 32 rows of the task these are.
    """

    vector: Expr
    strip: Expr
    apart: Expr
    row: Expr = 0


@dataclass(frozen=True)
class TileBlock:
    """A block of vectors and of k, with 32 rows.

    Attributes:
        vector, vectors: The first vector, and how many.
        strip, strips: The first of k, and how many.
        begins, ends: Whether it has the first step of all, and the last.
        pixel, pixels: The first of the rows, and how many.
        sums: Where theirs begin.
        later: What is fetched meanwhile.
    """

    vector: Expr
    vectors: Expr
    strip: Expr
    strips: Expr
    begins: Expr
    ends: Expr
    pixel: Expr = 0
    pixels: Expr = 0
    sums: Expr = 0
    later: Later | None = None


@dataclass(frozen=True)
class TileStrip:
    """A strip of 32 rows.

    Attributes:
        block: Theirs, with what the strip has of it.
        index: Its place in the block of k.
        step, steps: The first of k, and how many.
        next_pixel, next_step: Where the rows begin that are split after it.
    """

    block: TileBlock
    index: Expr
    step: Expr
    steps: Expr
    next_pixel: Expr
    next_step: Expr


@dataclass(frozen=True)
class TileProducts(ABC):
    """Rows times vectors of weights.

    Attributes:
        steps: Of k.
        channels: All that there are.
        width: Pixels of a row of the image; 1 where rows are those of a matrix.
        load_rows: (y, x, taps, k) -> the load of an element, behind which those of a step lie.
        load_weights: (channel, taps, k, count) -> the load of neighbouring channels.
        coordinates: (y, x, channel) -> indices of the anchor's result.
        epilogue: What becomes of sums.
        granted: Whether the task has tiles, an int32.
        has_few: Whether the task has `few_rows` of its form or fewer; None where only the run knows.
        packed: The weights where they were packed before the run; None where the task prepares them.
    """

    nest: Nest
    steps: TileSteps
    channels: int
    width: int
    load_rows: Callable[[Expr, Expr, Sequence[Expr], Expr], tirx.BufferLoad]
    load_weights: Callable[[Expr, Sequence[Expr], Expr, int], tirx.BufferLoad]
    coordinates: Callable[[Expr, Expr, Expr], list[Expr]]
    epilogue: Epilogue
    granted: Expr
    has_few: bool | None
    packed: TileWeights | None = None

    def emit(self, vector: Expr, vectors: Expr, pixel: Expr, pixels: Expr) -> None:
        """Add `vectors` vectors of channels from `vector` on, times `pixels` rows from `pixel` on."""
        nest, cut = self.nest, self._cut_k(pixels)
        if isinstance(cut, Split) and cut.count == 1:
            self._emit(cut, vector, vectors, pixel, pixels)
            return
        most = int64(_KEPT * amx.ROWS)
        if isinstance(cut, OpenSplit):  # sums of one block of k are not kept
            most = nest.settle("kept", tirx.Select(cut.count > 1, most, tirx.max(pixels, int64(1))))
        with nest.loop("group", tirx.floordiv(pixels + (most - 1), most)) as group:
            done = nest.settle("done", group * most)
            self._emit(cut, vector, vectors, pixel + done, tirx.min(most, pixels - done))

    def _cut_k(self, pixels: Expr) -> Split | OpenSplit:
        """Return how the strips of k of so many rows are cut into blocks."""
        form, strips = self.steps.form, self.steps.strips
        of_few, of_many = (Split.of(strips, most) for most in (form.few_strips, form.block_strips))
        if self.has_few is not None or of_few == of_many:
            return of_few if self.has_few else of_many
        count = tirx.Select(pixels <= form.few_rows, int64(of_few.count), int64(of_many.count))
        return OpenSplit.into(self.nest, int64(strips), count)

    def _emit(self, cut: Split | OpenSplit, vector: Expr, vectors: Expr, pixel: Expr, pixels: Expr) -> None:
        """Add so many rows, whose sums are kept between blocks of k."""
        nest, form = self.nest, self.steps.form
        is_open, longest = isinstance(cut, OpenSplit), min(form.block_strips, self.steps.strips)
        most, several = min(BLOCK_VECTORS, -(-self.channels // LANES)), is_open or cut.count > 1
        scratch = Scratch(
            left=nest.allocate("left_tiles", (form.strip_steps * form.row_elements,), form.row_dtype),
            right=None if self.packed else self._scratch_of(most, longest),
            sums=nest.allocate("sums", ((_KEPT if several else 1) * most * SUMS,), form.arithmetic.sums),
            vectors=most,
        )
        blocks, tiles = (nest.settle(*each) for each in (
            ("vector_blocks", ceil_div(vectors, most)), ("row_tiles", ceil_div(pixels, amx.ROWS)),
        ))  # fmt: skip

        def kept(row: Expr) -> Expr:
            """Return where the sums of 32 rows are kept, of which one block of k keeps none."""
            if is_open:
                return tirx.Select(cut.count > 1, int64(row), int64(0))
            return row if several else int64(0)

        with nest.loop("vectors", blocks) as index, nest.loop("k_block", cut.count) as place:
            block = TileBlock(
                vector=nest.bind("first_vector", int64(vector + index * most)),
                vectors=nest.bind("many_vectors", tirx.min(int64(most), vectors - index * most)),
                strip=int64(cut.start(place)), strips=int64(cut.size(place)),
                begins=int64(place) == 0, ends=int64(place) == cut.count - 1,
            )  # fmt: skip
            prepared = self._prepare(scratch, block)
            granted = self.granted > 0
            may = nest.keep("may", tirx.Cast("int32", granted if prepared is None else tirx.all(granted, prepared)))
            later = self._later(block, tiles, is_last=tirx.all(block.ends, int64(index) == blocks - 1))
            with nest.loop("rows", tiles) as row:
                rows = replace(
                    block, pixel=nest.bind("first_pixel", int64(pixel + row * amx.ROWS)),
                    pixels=nest.bind("many_pixels", tirx.min(int64(amx.ROWS), pixels - row * amx.ROWS)),
                    sums=kept(row) * (most * SUMS), later=later and replace(later, row=row),
                )  # fmt: skip
                self._multiply(scratch, rows, may > 0)
                with guard(nest, block.ends if several else None):
                    self._store(scratch, rows)

    def _later(self, block: TileBlock, tiles: Expr, *, is_last: Expr) -> Later | None:
        """Return what is fetched with the rows of a block, cut in so many `tiles`, of the next one; None of numbers of
        which nothing is, and nothing where it `is_last`, or tiles are so few that they would leave lines out."""
        form, nest = self.steps.form, self.nest
        if self.has_few is False or not form.numbers.later_lines:
            return None
        apart = tirx.truncdiv(int64(self._strip_bytes // self._fetched_lines), int64(tiles))
        skips = tirx.any(is_last, apart > CACHE_LINE, tiles * amx.ROWS > form.few_rows)
        apart = tirx.Select(skips, int64(0), apart)
        vector = tirx.Select(block.ends, block.vector + block.vectors, block.vector)
        strip = tirx.Select(block.ends, int64(0), block.strip + block.strips)
        settled = (("later_vector", vector), ("later_strip", strip), ("later_apart", apart))
        return Later(*(nest.settle(*each) for each in settled))

    @property
    def _fetched_lines(self) -> int:
        """Lines for later that the products of a strip with a vector fetch."""
        return self.steps.form.strip_steps * self.steps.form.numbers.later_lines

    @property
    def _strip_bytes(self) -> int:
        """Of a vector's weights in a strip, as they lie before the run."""
        form = self.steps.form
        step = form.numbers.weight_bytes if self.packed else form.numbers.depth * LANES * form.arithmetic.bytes
        return form.strip_steps * step

    def _multiply(self, scratch: Scratch, rows: TileBlock, may: Expr) -> None:
        """Add the sums of 32 rows, a strip of k after the other, in tiles where they and the strip `may` be."""
        nest, size = self.nest, self.steps.form.strip_steps
        with nest.loop("strip", rows.strips) as place:
            index = int64(place)
            is_last = index == rows.strips - 1
            first = nest.bind("first_step", (rows.strip + index) * size)
            behind = tirx.Select(is_last, rows.strip * size, first + size)
            strip = TileStrip(
                replace(rows, begins=tirx.all(rows.begins, index == 0), ends=tirx.all(rows.ends, is_last)), index,
                step=first, steps=nest.bind("steps", tirx.min(int64(size), self.steps.count - first)),
                next_pixel=nest.bind("next_pixel", tirx.Select(is_last, rows.pixel + amx.ROWS, rows.pixel)),
                next_step=nest.bind("next_step", behind),
            )  # fmt: skip
            filled = self._fill(scratch, strip)
            in_tiles, by_vector = partial(self._in_tiles, scratch, strip), partial(self._by_vector, scratch, strip)
            nest.choose(may if filled is None else tirx.all(may, filled), in_tiles, by_vector)

    def _scratch_of(self, vectors: int, strips: int) -> TileWeights:
        """Return memory for a block of weights."""
        form = self.steps.form
        memory = self.nest.allocate("right_tiles", (strips * vectors * form.strip_elements,), form.weight_dtype)
        return TileWeights(memory, vectors, self.steps)

    @abstractmethod
    def _prepare(self, scratch: Scratch, block: TileBlock) -> Expr | None:
        """Add what makes tiles of a block's weights; return whether they may be multiplied in tiles, None where they
        always may."""

    @abstractmethod
    def _fill(self, scratch: Scratch, strip: TileStrip) -> Expr | None:
        """Add what makes tiles of a strip of 32 rows; return whether they may be multiplied in tiles, None where they
        always may."""

    @abstractmethod
    def _by_vector(self, scratch: Scratch, strip: TileStrip) -> None:
        """Add the products of a strip without tiles."""

    def _in_tiles(self, scratch: Scratch, strip: TileStrip) -> None:
        """Add the products of a strip in tiles, and the fetches."""
        nest, block, share, form = self.nest, strip.block, -(-amx.ROWS // scratch.vectors), self.steps.form
        clears = tirx.Cast("int32", block.begins)
        with nest.loop("v", block.vectors) as v:
            left = tirx.BufferLoad(scratch.left, [int64(0)])
            sums = tirx.BufferLoad(scratch.sums, [block.sums + v * SUMS])
            right = self._right(scratch, strip, v)
            later, apart = (right, int64(0)) if block.later is None else (
                self._part_of(block.later, strip.index, v), block.later.apart
            )  # fmt: skip
            nest.add(form.numbers.multiply(left, right, sums, strip.steps, clears, later, apart))
            with nest.loop("row", share) as row:
                y, x = self._pixel(strip.next_pixel + v * share + row)
                self._fetch_rows(y, x, strip.next_step)
            with guard(nest, block.ends), nest.loop("row", block.pixels) as row:
                at = self.coordinates(*self._pixel(block.pixel + row), (block.vector + v) * LANES)
                self.epilogue.fetch(nest, at)

    def _fetch_rows(self, y: Expr, x: Expr, step: Expr) -> None:
        """Add the fetches of a strip of a row."""
        nest, form = self.nest, self.steps.form
        together = form.strip_steps if prod(self.steps.taps) == 1 else 1
        size = together * form.numbers.depth * form.arithmetic.bytes
        with nest.loop("step", form.strip_steps // together) as part:
            taps, k = self.steps.place(step + part)
            nest.add(amx.fetch(self.load_rows(y, x, taps, k), size))

    def _right(self, scratch: Scratch, strip: TileStrip, v: Expr) -> tirx.BufferLoad:
        """Return the load of the first of vector `v` of the block in a strip."""
        if self.packed:
            at = self.packed.at(strip.block.strip + strip.index, strip.block.vector + v)
            return tirx.BufferLoad(self.packed.memory, [at])
        assert scratch.right is not None, "a task prepares what was not packed"
        return tirx.BufferLoad(scratch.right.memory, [scratch.right.at(strip.index, v)])

    def _part_of(self, later: Later, strip: Expr, v: Expr) -> tirx.BufferLoad:
        """Return the load of the first weight of the part that is fetched of a strip and a vector of the next block."""
        strip, vector, form = later.strip + strip, later.vector + v, self.steps.form
        if self.packed:
            first = tirx.BufferLoad(self.packed.memory, [self.packed.at(strip, vector)])
        else:
            first = self.load_weights(vector * LANES, *self.steps.place(strip * form.strip_steps), 1)
        *outer, inner = first.indices
        each = bytes_of(dtype_of(first.source))
        behind = tirx.truncdiv(later.row * later.apart * self._fetched_lines, int64(each))
        return tirx.BufferLoad(first.source, [*outer, inner + behind])

    def _store(self, scratch: Scratch, block: TileBlock) -> None:
        """Add the epilogue of 32 rows."""
        nest, rest = self.nest, self.channels % LANES
        with nest.loop("row", block.pixels) as row, nest.loop("v", block.vectors) as v:
            y, x = self._pixel(block.pixel + row)
            channel, sums = (block.vector + v) * LANES, block.sums + (v * SUMS + row * LANES)

            def read(offset: int, lane: Expr) -> Expr:
                return tirx.BufferLoad(scratch.sums, [sums + (offset + lane)])

            def at(offset: Expr) -> list[Expr]:
                return self.coordinates(y, x, channel + offset)

            whole = partial(self.epilogue.store_row, nest, [(0, LANES)], read, at)
            last = partial(self.epilogue.store_row, nest, pieces(rest, LANES), read, at)
            if not rest:
                whole()
            elif self.channels < LANES:
                last()
            else:
                nest.choose(channel + LANES <= self.channels, whole, last)

    def _pixel(self, pixel: Expr) -> tuple[Expr, Expr]:
        """Return the row and the column of a pixel."""
        if self.width == 1:
            return pixel, int64(0)
        return tirx.floordiv(pixel, self.width), tirx.floormod(pixel, self.width)
