"""Products of float32 as products of bfloat16 terms, in tiles of AMX (`backends/cpu/amx.py`).

What a task of a contraction becomes whose blocking is `in_terms`:

    for block of vectors                            of up to 1024 rows, where there are several blocks of k
      for block of k
        [split weights]                             their terms of both blocks, which L2 holds, if they were not packed
        for 32 rows
          for strip of k
            split rows                              theirs, which L1 holds
            for vector
              sums[32 rows, vector] += rows x weights
              [fetch a part of the rows that are split next, and, in the last strip, of the result]
          outputs = epilogue(sums)                  behind the last block of k

Infinities and NaN have no such terms. Where one is among the rows or the weights, or Linux grants no tiles, a strip is
multiplied element by element, as float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from tvm import tirx
from tvm.ir import Var

from backends.cpu import amx
from backends.cpu.kernels.shared.epilogue import Epilogue
from backends.cpu.kernels.shared.open_split import ceil_div
from backends.cpu.kernels.shared.split import Split, tile_count
from backends.tensorir.accesses import unravel
from backends.tensorir.emit import Expr, Nest, guard, int64, pieces, prefetch, ramp, splat

BLOCK_VECTORS = 16
"""Of a block of weights, whose terms over `_BLOCK_STRIPS` L2 holds: 1.2 MB."""

STRIP_STEPS = 4
"""Steps of k of a strip, of which L1 holds the terms of 32 rows: 24 KiB."""

_BLOCK_STRIPS = 6
"""Strips of a block of k."""

_KEPT = 32
"""Times 32 rows, whose sums of a block of vectors are kept between blocks of k: 1 MB."""

_WIDE = 8
"""Vectors that are multiplied together where it is not in terms: enough to hide what an addition takes."""

_LANES, _PAIRS = amx.COLUMNS, amx.DEPTH // 2
_STEP_WORDS = amx.RIGHT_ELEMENTS // 2
_STRIP_WORDS = STRIP_STEPS * _STEP_WORDS
_SUMS = amx.ROWS * amx.COLUMNS
_HIGH, _SIZE, _INFINITE = 0xFFFF0000, 0x7FFFFFFF, 0x7F800000
"""Of the bits of a float32: those of its first term, those of its size, and those of an infinite one, which a NaN has
more than."""


@dataclass(frozen=True)
class TermSteps:
    """Steps of k of all taps, one tap's after another's.

    Attributes:
        taps: Extents of the window loops.
        depth: Elements of k of a tap, whose last step may be less than whole.
    """

    taps: tuple[int, ...]
    depth: int

    @property
    def of_tap(self) -> int:
        """Those of a tap."""
        return -(-self.depth // amx.DEPTH)

    @property
    def count(self) -> int:
        """All of them."""
        return prod(self.taps) * self.of_tap

    @property
    def strips(self) -> int:
        """In how many strips they are."""
        return -(-self.count // STRIP_STEPS)

    @property
    def rest(self) -> int:
        """Elements of a tap's last step where that is less than whole, 0 where it is whole."""
        return self.depth % amx.DEPTH

    def place(self, step: Expr) -> tuple[list[Expr], Expr]:
        """Return the taps of a step, and its first element of k."""
        tap = tirx.floordiv(step, self.of_tap)
        return unravel(tap, self.taps), tirx.floormod(step, self.of_tap) * amx.DEPTH


@dataclass(frozen=True)
class TermWeights:
    """Terms of weights, two elements of k a word: [strip][vector][step][term][k / 2][channel].

    Attributes:
        memory: The words; where they were packed before the run, float32 by name, with a vector behind them that says
            whether they are finite (`packed_terms.py`).
        vectors: Of a strip.
    """

    memory: Var
    vectors: int

    @staticmethod
    def declare(name: str, vectors: int, steps: TermSteps) -> TermWeights:
        """Return weights that were packed."""
        size = steps.strips * vectors * _STRIP_WORDS + _LANES
        return TermWeights(tirx.decl_buffer((size,), "float32", name), vectors)

    def at(self, strip: Expr, vector: Expr, step: Expr = 0) -> Expr:
        """Return where the terms of a step of a strip begin."""
        return (strip * self.vectors + vector) * _STRIP_WORDS + step * _STEP_WORDS

    def are_finite(self, steps: TermSteps) -> Expr:
        """Return whether all are, of those that were packed."""
        flag = tirx.BufferLoad(self.memory, [int64(steps.strips * self.vectors * _STRIP_WORDS)])
        return tirx.reinterpret("uint32", flag).equal(tirx.const(0, "uint32"))

    def load(self, at: Expr, k: Expr) -> Expr:
        """Return the vector of weights of an element of k of the step at `at`, the sum of their terms."""
        shift = tirx.Cast("uint32", (1 - tirx.floormod(k, 2)) * 16)
        found: Expr = None
        for term in reversed(range(amx.TERMS)):
            place = at + (tirx.floordiv(k, 2) + term * _PAIRS) * _LANES
            word = _bits(tirx.BufferLoad(self.memory, [ramp(place, _LANES)]), _LANES)
            high = tirx.bitwise_and(tirx.shift_left(word, splat(shift, _LANES)), splat(_high(), _LANES))
            value = tirx.reinterpret(_vector("float32", _LANES), high)
            found = value if found is None else value + found
        return found


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
        largest = nest.allocate(name, (_LANES,), "uint32")
        nest.store(largest, [ramp(0, _LANES)], splat(tirx.const(0, "uint32"), _LANES))
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
        found = nest.allocate(name, (1,), "uint32")
        largest = tirx.BufferLoad(found, [int64(0)])
        nest.store(found, [int64(0)], tirx.const(0, "uint32"))
        with nest.loop("lane", _LANES) as lane:
            nest.store(found, [int64(0)], tirx.max(largest, tirx.BufferLoad(self.largest, [lane])))
        return largest < tirx.const(_INFINITE, "uint32")


@dataclass(frozen=True)
class _Scratch:
    """Memory of a task.

    Attributes:
        left: Terms of a strip of 32 rows, in bfloat16: [step][term][row][k].
        right: Those of a block of weights that the task splits; None where they were packed.
        sums: [32 rows][vector][row][channel].
        vectors: Of a block, at most.
    """

    left: Var
    right: TermWeights | None
    sums: Var
    vectors: int


@dataclass(frozen=True)
class _Block:
    """A block of vectors and of k; 32 rows of it; a strip of these.

    Attributes:
        vector, vectors: The first, and how many.
        strip, strips: The first of k, and how many.
        begins, ends: Whether it has the first step of all, and the last.
        pixel, pixels: The first of the rows, and how many.
        sums: Where theirs begin.
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


@dataclass(frozen=True)
class _Strip:
    """A strip of 32 rows.

    Attributes:
        block: Theirs, with what the strip has of it.
        index: Its place in the block of k.
        step, steps: The first of k, and how many.
        next_pixel, next_step: Where the rows begin that are split after it.
    """

    block: _Block
    index: Expr
    step: Expr
    steps: Expr
    next_pixel: Expr
    next_step: Expr


@dataclass(frozen=True)
class TermProducts:
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
        terms: The weights' terms where they were packed before the run; None where the task splits the weights.
    """

    nest: Nest
    steps: TermSteps
    channels: int
    width: int
    load_rows: Callable[[Expr, Expr, Sequence[Expr], Expr], tirx.BufferLoad]
    load_weights: Callable[[Expr, Sequence[Expr], Expr, int], tirx.BufferLoad]
    coordinates: Callable[[Expr, Expr, Expr], list[Expr]]
    epilogue: Epilogue
    granted: Expr
    terms: TermWeights | None = None

    def emit(self, vector: Expr, vectors: Expr, pixel: Expr, pixels: Expr) -> None:
        """Add `vectors` vectors of channels from `vector` on, times `pixels` rows from `pixel` on."""
        if self._k_blocks.count == 1:
            self._emit(vector, vectors, pixel, pixels)
            return
        with self.nest.loop("group", ceil_div(pixels, _KEPT * amx.ROWS)) as group:
            done = self.nest.settle("done", group * (_KEPT * amx.ROWS))
            self._emit(vector, vectors, pixel + done, tirx.min(int64(_KEPT * amx.ROWS), pixels - done))

    @property
    def _k_blocks(self) -> Split:
        """How the strips of k are cut."""
        return Split.of(self.steps.strips, _BLOCK_STRIPS)

    def _emit(self, vector: Expr, vectors: Expr, pixel: Expr, pixels: Expr) -> None:
        """Add so many rows, whose sums are kept between blocks of k."""
        nest, cut = self.nest, self._k_blocks
        most, several = min(BLOCK_VECTORS, -(-self.channels // _LANES)), cut.count > 1
        scratch = _Scratch(
            left=nest.allocate("left_terms", (STRIP_STEPS * amx.LEFT_ELEMENTS,), "uint16"),
            right=None if self.terms else self._scratch_of(most, cut.longest),
            sums=nest.allocate("sums", ((_KEPT if several else 1) * most * _SUMS,)),
            vectors=most,
        )
        with nest.loop("vectors", ceil_div(vectors, most)) as index, nest.loop("k_block", cut.count) as place:
            block = _Block(
                vector=nest.bind("first_vector", int64(vector + index * most)),
                vectors=nest.bind("many_vectors", tirx.min(int64(most), vectors - index * most)),
                strip=int64(cut.start(place)), strips=int64(tile_count(cut, place)),
                begins=int64(place) == 0, ends=int64(place) == cut.count - 1,
            )  # fmt: skip
            are_finite = self.terms.are_finite(self.steps) if self.terms else self._split_weights(scratch, block)
            may = nest.keep("may", tirx.Cast("int32", tirx.all(self.granted > 0, are_finite)))
            with nest.loop("rows", ceil_div(pixels, amx.ROWS)) as row:
                rows = replace(
                    block, pixel=nest.bind("first_pixel", int64(pixel + row * amx.ROWS)),
                    pixels=nest.bind("many_pixels", tirx.min(int64(amx.ROWS), pixels - row * amx.ROWS)),
                    sums=row * (most * _SUMS) if several else int64(0),
                )  # fmt: skip
                self._multiply(scratch, rows, may > 0)
                with guard(nest, block.ends if several else None):
                    self._store(scratch, rows)

    def _multiply(self, scratch: _Scratch, rows: _Block, may: Expr) -> None:
        """Add the sums of 32 rows, a strip of k after the other, in tiles where they `may` be and the strip is
        finite."""
        nest = self.nest
        with nest.loop("strip", rows.strips) as place:
            index = int64(place)
            is_last = index == rows.strips - 1
            first = nest.bind("first_step", (rows.strip + index) * STRIP_STEPS)
            behind = tirx.Select(is_last, rows.strip * STRIP_STEPS, first + STRIP_STEPS)
            strip = _Strip(
                replace(rows, begins=tirx.all(rows.begins, index == 0), ends=tirx.all(rows.ends, is_last)), index,
                step=first, steps=nest.bind("steps", tirx.min(int64(STRIP_STEPS), self.steps.count - first)),
                next_pixel=nest.bind("next_pixel", tirx.Select(is_last, rows.pixel + amx.ROWS, rows.pixel)),
                next_step=nest.bind("next_step", behind),
            )  # fmt: skip
            seen = _Finite.allocate(nest, "rows_seen")
            self._split_rows(scratch, strip, seen)
            in_tiles, by_element = partial(self._in_tiles, scratch, strip), partial(self._by_element, scratch, strip)
            nest.choose(tirx.all(may, seen.holds(nest, "row")), in_tiles, by_element)

    def _scratch_of(self, vectors: int, strips: int) -> TermWeights:
        """Return memory for the terms of a block of weights."""
        return TermWeights(self.nest.allocate("right_terms", (strips * vectors * _STRIP_WORDS,), "uint32"), vectors)

    def _split_weights(self, scratch: _Scratch, block: _Block) -> Expr:
        """Add the split of a block's weights; return whether they are finite."""
        nest, depth, right = self.nest, self.steps.depth, scratch.right
        assert right is not None, "weights are split into scratch"
        seen = _Finite.allocate(nest, "weights_seen")
        begin = block.strip * STRIP_STEPS
        with (
            nest.loop("v", block.vectors) as v,
            nest.loop("step", tirx.min(block.strips * STRIP_STEPS, self.steps.count - begin)) as step,
            nest.loop("pair", _PAIRS) as pair,
        ):
            taps, k = self.steps.place(begin + step)
            strip, inside = tirx.floordiv(step, STRIP_STEPS), tirx.floormod(step, STRIP_STEPS)
            to = right.at(strip, v, inside) + pair * _LANES
            first = k + 2 * pair
            load = partial(self.load_weights, (block.vector + v) * _LANES, taps)

            def put(words: Iterable[Expr]) -> None:
                for term, word in enumerate(words):
                    nest.store(right.memory, [ramp(to + term * _PAIRS * _LANES, _LANES)], word)

            def split_two() -> None:
                even, odd = load(first, 1), load(first + 1, 1)
                nest.add(amx.split_weights(even, odd, tirx.BufferLoad(right.memory, [to]), seen.first))

            def split_one() -> None:
                weights = nest.bind("weights", load(first, _LANES))
                seen.see(nest, weights, _LANES)
                put(_halves(term, _LANES) for term in _terms(nest, weights, _LANES))

            def clear() -> None:
                put([splat(tirx.const(0, "uint32"), _LANES)] * amx.TERMS)

            def split_rest() -> None:
                nest.choose(first < depth, split_one if depth % 2 else split_two, clear)

            if not self.steps.rest:
                split_two()
            elif depth % 2:
                nest.choose(first + 1 < depth, split_two, split_rest)
            else:
                split_rest()
        return seen.holds(nest, "weight")

    def _split_rows(self, scratch: _Scratch, strip: _Strip, seen: _Finite) -> None:
        """Add the split of a strip of 32 rows."""
        nest = self.nest
        with nest.loop("row", strip.block.pixels) as row, nest.loop("step", strip.steps) as step:
            taps, k = self.steps.place(strip.step + step)
            load = partial(self.load_rows, *self._pixel(strip.block.pixel + row), taps)
            to = step * amx.LEFT_ELEMENTS + row * amx.DEPTH

            def split_whole() -> None:
                nest.add(amx.split_row(load(k), tirx.BufferLoad(scratch.left, [to]), seen.first))

            def split_rest() -> None:
                for at, lanes in pieces(self.steps.rest, _LANES):
                    first = load(k + at)
                    *outer, inner = first.indices
                    value = nest.bind("part", tirx.BufferLoad(first.source, [*outer, ramp(inner, lanes)]))
                    seen.see(nest, value, lanes)
                    put(at, lanes, (_halves(term, lanes) for term in _terms(nest, value, lanes)))
                for at, lanes in pieces(amx.DEPTH - self.steps.rest, _LANES):
                    put(self.steps.rest + at, lanes, [splat(tirx.const(0, "uint32"), lanes)] * amx.TERMS)

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

    def _in_tiles(self, scratch: _Scratch, strip: _Strip) -> None:
        """Add the products of a strip's terms, and the fetches."""
        nest, block, share = self.nest, strip.block, -(-amx.ROWS // scratch.vectors)
        clears = tirx.Cast("int32", block.begins)
        with nest.loop("v", block.vectors) as v:
            left = tirx.BufferLoad(scratch.left, [int64(0)])
            sums = tirx.BufferLoad(scratch.sums, [block.sums + v * _SUMS])
            nest.add(amx.multiply(left, self._right(scratch, strip, v), sums, strip.steps, clears))
            with nest.loop("row", share) as row, nest.loop("step", STRIP_STEPS) as step:
                taps, k = self.steps.place(strip.next_step + step)
                y, x = self._pixel(strip.next_pixel + v * share + row)
                for line in range(0, amx.DEPTH, _LANES):
                    prefetch(nest, self.load_rows(y, x, taps, k + line))
            with guard(nest, block.ends), nest.loop("row", block.pixels) as row:
                at = self.coordinates(*self._pixel(block.pixel + row), (block.vector + v) * _LANES)
                self.epilogue.fetch(nest, at)

    def _right(self, scratch: _Scratch, strip: _Strip, v: Expr) -> tirx.BufferLoad:
        """Return the load of the first of a strip's terms of vector `v` of the block."""
        if self.terms:
            at = self.terms.at(strip.block.strip + strip.index, strip.block.vector + v)
            return tirx.BufferLoad(self.terms.memory, [at])
        assert scratch.right is not None, "weights are split into scratch"
        return tirx.BufferLoad(scratch.right.memory, [scratch.right.at(strip.index, v)])

    def _by_element(self, scratch: _Scratch, strip: _Strip) -> None:
        """Add the products of a strip as float32, a row times `_WIDE` vectors at a time; those behind the last are the
        last, once more."""
        nest, here, block = self.nest, [ramp(int64(0), _LANES)], strip.block
        with nest.loop("row", block.pixels) as row, nest.loop("wide", ceil_div(block.vectors, _WIDE)) as wide:
            load_row = partial(self.load_rows, *self._pixel(block.pixel + row))
            vectors = [
                nest.settle("v", tirx.min(int64(wide * _WIDE + place), block.vectors - 1)) for place in range(_WIDE)
            ]
            sums = [block.sums + (v * _SUMS + row * _LANES) for v in vectors]
            totals = [tirx.BufferLoad(nest.allocate("total", (_LANES,)), here) for _ in vectors]
            for total, at in zip(totals, sums, strict=True):
                nest.store(total.source, here, splat(tirx.const(0, "float32"), _LANES))
                with guard(nest, tirx.Not(block.begins)):
                    nest.store(total.source, here, tirx.BufferLoad(scratch.sums, [ramp(at, _LANES)]))
            with nest.loop("step", strip.steps) as step:
                taps, k = self.steps.place(strip.step + step)
                many = tirx.min(self.steps.depth - k, int64(amx.DEPTH)) if self.steps.rest else amx.DEPTH
                with nest.loop("k", many) as inner:
                    left = nest.settle("row_element", load_row(taps, k + inner))
                    for total, v in zip(totals, vectors, strict=True):
                        vector = block.vector + v
                        if self.terms:
                            right = self.terms.load(self.terms.at(block.strip + strip.index, vector, step), inner)
                        else:
                            right = self.load_weights(vector * _LANES, taps, k + inner, _LANES)
                        nest.store(total.source, here, total + splat(left, _LANES) * right)
            for total, at in zip(totals, sums, strict=True):
                nest.store(scratch.sums, [ramp(at, _LANES)], total)

    def _store(self, scratch: _Scratch, block: _Block) -> None:
        """Add the epilogue of 32 rows."""
        nest, rest = self.nest, self.channels % _LANES
        with nest.loop("row", block.pixels) as row, nest.loop("v", block.vectors) as v:
            y, x = self._pixel(block.pixel + row)
            channel, sums = (block.vector + v) * _LANES, block.sums + (v * _SUMS + row * _LANES)

            def read(offset: int, lane: Expr) -> Expr:
                return tirx.BufferLoad(scratch.sums, [sums + (offset + lane)])

            def at(offset: Expr) -> list[Expr]:
                return self.coordinates(y, x, channel + offset)

            whole = partial(self.epilogue.store_row, nest, [(0, _LANES)], read, at)
            last = partial(self.epilogue.store_row, nest, pieces(rest, _LANES), read, at)
            if not rest:
                whole()
            elif self.channels < _LANES:
                last()
            else:
                nest.choose(channel + _LANES <= self.channels, whole, last)

    def _pixel(self, pixel: Expr) -> tuple[Expr, Expr]:
        """Return the row and the column of a pixel."""
        if self.width == 1:
            return pixel, int64(0)
        return tirx.floordiv(pixel, self.width), tirx.floormod(pixel, self.width)


def _terms(nest: Nest, value: Expr, lanes: int) -> Iterator[Expr]:
    """Yield the terms of a vector of float32, in the high halves of words."""
    high = splat(_high(), lanes)
    for place in range(amx.TERMS):
        term = nest.bind("term", tirx.bitwise_and(_bits(value, lanes), high))
        yield term
        if place < amx.TERMS - 1:
            value = nest.bind("behind", value - tirx.reinterpret(_vector("float32", lanes), term))


def _halves(term: Expr, lanes: int) -> Expr:
    """Return the high halves of words, as words."""
    return tirx.shift_right(term, splat(tirx.const(16, "uint32"), lanes))


def _high() -> Expr:
    return tirx.const(_HIGH, "uint32")


def _bits(value: Expr, lanes: int) -> Expr:
    return tirx.reinterpret(_vector("uint32", lanes), value)


def _vector(dtype: str, lanes: int) -> str:
    return f"{dtype}x{lanes}" if lanes > 1 else dtype
