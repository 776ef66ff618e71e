"""The first elements of rows in order, in loops of our own, rows in parallel.

A key is an integer of 32 bits: the larger, the earlier. With its place in the row behind it an element is one integer
of 64 bits, no two of which are equal; of equal keys the one with the lower place is the larger element.

Few (`_insert`): a list in order, in vectors. What is not above its end is passed over, without branches otherwise.
A form for all sizes may want as many as there are rows, or half of these: it has lists of two lengths, and the call
decides which has a place for all.

    for row in parallel
      list = its first elements
      for block of 64 in the rest, if max(keys) > key of list[-1]
        for block of 16 in it, if max(keys) > key of list[-1]
          for element of those above: list[j] = max(list[j], min(list[j - 1], element))      vectors of j

Many (`_distribute`): those of the bins of keys that hold the first ones are sorted by one byte of the keys after the
other, the lowest first (radix sort; Knuth, The Art of Computer Programming 3, 5.2.5).

    for row in parallel
      for element: bins[its upper 10 bits] += 1
      elements = those up to the bin with which there are enough                           all, where half are wanted
      for byte in 4: elements = elements by this byte, stable
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx
from tvm.tirx import ForKind

from backends.tensorir.emit import Nest, int64, ramp, splat
from backends.tensorir.extents import Extent, extent_of, typical

Expr = Any  # a TensorIR expression
Keys = Callable[[Expr, int], Expr]
"""Return the keys of this many elements of a row, from a place on."""

KEYED = frozenset(("float32", "float16", "bfloat16", "int32", "int16", "int8", "uint8", "uint16", "bool"))
"""The dtypes whose values are integers of 32 bits in the same order."""

_KEYS, _BLOCK = 16, 64
"""Keys of a vector; elements that are passed over at once."""
_ELEMENTS = 8
"""Elements of a vector."""
_LONGEST = 64
"""The longest list: a part of a KiB, so that it is on the stack."""
_SHORT, _LONG = 32, 512
"""Lists for rows of any length; rows for any list."""
_OPEN_LISTS = (8, 32)
"""Places of the lists of forms for all sizes: the code of one takes LLVM 0.2 s."""
_PARALLEL = 1 << 12
"""Elements that take as long as waking threads."""
_BIN_BITS, _DIGITS = 10, 256
_LOW = 0xFFFFFFFF


def key_of(value: Expr, lanes: int = 1) -> Expr:
    """Return integers of 32 bits, or of 64 of a float64, that compare as `value`: NaN above all numbers, and -0 as 0.

    The bits of a positive float compare as an integer, those of a negative one the other way round.
    """
    dtype = str(value.ty.dtype)
    if not dtype.startswith(("float", "bfloat")):
        return value
    wide, bits = ("float64", "int64") if dtype.startswith("float64") else ("float32", "int32")
    value = value.astype(wide if lanes == 1 else f"{wide}x{lanes}")
    zero, most = splat(tirx.const(0, wide), lanes), splat(tirx.max_value(bits), lanes)
    sign = splat(tirx.const(63 if bits == "int64" else 31, bits), lanes)
    number = tirx.reinterpret(bits if lanes == 1 else f"{bits}x{lanes}", tirx.Select(value == zero, zero, value))
    # by arithmetic: TVM makes a branch of a choice between loads, which signs in no order mislead
    ordered = tirx.bitwise_xor(number, tirx.bitwise_and(tirx.shift_right(number, sign), most))
    infinity = splat(tirx.const(float("inf"), wide), lanes)
    return tirx.Select(value <= infinity, ordered, most)  # of NaN, whose sign may be either; TVM folds `value == value`


def first_of_rows(
    x: te.Tensor, count: Extent, *, ascending: bool, dtype: str, values: bool, places: bool, is_open: bool
) -> list[te.Tensor]:
    """Return the first `count` elements along the last axis in order, and where they are, as `dtype`: what is asked for
    of the two. `x` is of a dtype in `KEYED`, and `count` at most its last extent; where the form `is_open`, it may be
    another one in each call."""
    *outer, length = map(extent_of, x.shape)

    def loops(operands: Sequence[tirx.Buffer], results: Sequence[tirx.Buffer]) -> tirx.Stmt:
        nest = Nest()
        lists = _OPEN_LISTS if is_open else _list_of(length, count)
        first = _First(nest, operands[0], length, count, ascending=ascending, lists=lists)

        def lines(kind: ForKind) -> None:
            with nest.loop("line", _product(outer), kind) as line:
                row = _split(line, outer)
                for j, place in first.places(row):
                    found = [tirx.BufferLoad(operands[0], [*row, place])] * values + [place.astype(dtype)] * places
                    for result, value in zip(results, found, strict=True):
                        nest.store(result, [*row, j], value)

        # a number in a buffer is none to TVM: what is written is the same for all sizes, so that open forms have it too
        elements = nest.settle("elements", tirx.Mul(int64(_product(outer)), int64(length)))
        nest.choose(elements >= _PARALLEL, lambda: lines(ForKind.PARALLEL), lambda: lines(ForKind.SERIAL))
        return nest.finish()

    dtypes = [str(x.dtype)] * values + [dtype] * places
    made = te.extern([[*x.shape[:-1], count]] * len(dtypes), [x], loops, name="first_of_rows", dtype=dtypes)
    return list(made) if isinstance(made, list | tuple) else [made]


@dataclass(frozen=True)
class _First:
    """The first `count` elements of rows of `data`, of `length` each, in one of `lists` of so many places where that
    has one for each."""

    nest: Nest
    data: tirx.Buffer
    length: Extent
    count: Extent
    ascending: bool
    lists: Sequence[int]

    def places(self, row: list[Expr]) -> Iterator[tuple[Expr, Expr]]:
        """Yield the number of an element and its place in the row, inside a loop over them; in each of both forms where
        it is decided in the call which one."""
        nest, keys = self.nest, _keys(self.data, row, self.ascending)
        for shorter, places in zip((0, *self.lists), self.lists, strict=False):
            with nest.when(tirx.And(self._is_above(shorter), tirx.Not(self._is_above(places)))):
                yield from self._in_loop(_insert(nest, keys, self.length, self.count, places // _ELEMENTS))
        with nest.when(self._is_above(self.lists[-1] if self.lists else 0)):
            yield from self._in_loop(_distribute(nest, keys, self.length, self.count))

    def _is_above(self, places: int) -> Expr:
        return tirx.LT(int64(places), int64(self.count))

    def _in_loop(self, place_of: Callable[[Expr], Expr]) -> Iterator[tuple[Expr, Expr]]:
        with self.nest.loop("j", self.count) as j:
            yield j, self.nest.settle("place", place_of(j))


def _keys(data: tirx.Buffer, row: list[Expr], ascending: bool) -> Keys:
    def keys(at: Expr, lanes: int) -> Expr:
        key = key_of(tirx.BufferLoad(data, [*row, ramp(at, lanes)]), lanes)
        key = key.astype("int32" if lanes == 1 else f"int32x{lanes}")
        return tirx.bitwise_not(key) if ascending else key

    return keys


def _list_of(length: Extent, count: Extent) -> tuple[int, ...]:
    """Return the places of a list of all that are wanted, in vectors, if that is faster: as it was on Emerald Rapids,
    where an element takes 20 + count * 3 / 4 cycles to come into a list, and a sort 3000 and 16 for each element of the
    row."""
    is_few = isinstance(count, int) and (count <= _SHORT or (count <= _LONGEST and typical(length) >= _LONG))
    return (-(-count // _ELEMENTS) * _ELEMENTS,) if is_few else ()


def _insert(nest: Nest, keys: Keys, length: Extent, count: Extent, vectors: int) -> Callable[[Expr], Expr]:
    """Return the places of the first elements by their order, from a list of so many vectors."""
    found = nest.allocate("found", (_ELEMENTS * (1 + vectors),), "int64")  # behind what no element is above
    hits = nest.allocate("hits", (_KEYS,), "int32")
    many = nest.allocate("many", (1,), "int64")
    block_keys = nest.allocate("block_keys", (_KEYS,), "int32")
    begin, end = tirx.min_value("int64"), tirx.max_value("int64")
    nest.store(found, [ramp(int64(0), _ELEMENTS)], splat(end, _ELEMENTS))
    for vector in range(1, vectors + 1):
        nest.store(found, [ramp(int64(vector * _ELEMENTS), _ELEMENTS)], splat(begin, _ELEMENTS))

    def insert(key: Expr, at: Expr) -> None:
        low = tirx.bitwise_xor(at.astype("int64"), int64(_LOW))
        element = nest.settle("element", tirx.bitwise_or(tirx.shift_left(key.astype("int64"), int64(32)), low))
        for vector in range(vectors, 0, -1):
            here = vector * _ELEMENTS
            one, before = (tirx.BufferLoad(found, [ramp(int64(start), _ELEMENTS)]) for start in (here, here - 1))
            nest.store(
                found, [ramp(int64(here), _ELEMENTS)], tirx.max(one, tirx.min(before, splat(element, _ELEMENTS)))
            )

    def last_key() -> Expr:
        last = tirx.BufferLoad(found, [int64(_ELEMENTS + count - 1)])
        return tirx.shift_right(last, int64(32)).astype("int32")

    def insert_block(at: Expr) -> None:
        nest.store(block_keys, [ramp(int64(0), _KEYS)], keys(at, _KEYS))
        limit = nest.settle("limit", last_key())
        so_far = tirx.BufferLoad(many, [int64(0)])
        nest.store(many, [int64(0)], int64(0))
        with nest.loop("i", _KEYS) as i:
            nest.store(hits, [so_far], i.astype("int32"))
            nest.store(many, [int64(0)], so_far + (tirx.BufferLoad(block_keys, [i]) > limit).astype("int64"))
        with nest.loop("i", so_far) as i:
            hit = nest.settle("hit", tirx.BufferLoad(hits, [i]).astype("int64"))
            insert(tirx.BufferLoad(block_keys, [hit]), at + hit)

    with nest.loop("i", count) as i:
        insert(keys(i, 1), i)
    size = nest.settle("size", int64(length))
    blocks = nest.settle("blocks", tirx.truncdiv(size - count, int64(_BLOCK)))
    with nest.loop("block", blocks) as block:
        start = nest.settle("start", count + block * _BLOCK)
        four = [keys(start + offset, _KEYS) for offset in range(0, _BLOCK, _KEYS)]
        most = tirx.max(tirx.max(four[0], four[1]), tirx.max(four[2], four[3]))
        with nest.when(_largest_lane(nest, most) > last_key()), nest.loop("v", _BLOCK // _KEYS) as v:
            at = nest.settle("at", start + v * _KEYS)
            with nest.when(_largest_lane(nest, keys(at, _KEYS)) > last_key()):
                insert_block(at)
    done = nest.settle("done", count + blocks * _BLOCK)
    with nest.loop("i", size - done) as i:
        key = nest.settle("key", keys(done + i, 1))
        with nest.when(key > last_key()):
            insert(key, done + i)
    return lambda j: tirx.bitwise_xor(
        tirx.bitwise_and(tirx.BufferLoad(found, [_ELEMENTS + j]), int64(_LOW)), int64(_LOW)
    )


def _largest_lane(nest: Nest, value: Expr) -> Expr:
    """Return the largest lane of a vector, halved again and again: LLVM makes shuffles of the buffer."""
    lanes = nest.allocate("lanes", (_KEYS,), "int32")
    nest.store(lanes, [ramp(int64(0), _KEYS)], value)
    half = _KEYS // 2
    while half:
        pair = [tirx.BufferLoad(lanes, [ramp(int64(begin), half)]) for begin in (0, half)]
        nest.store(lanes, [ramp(int64(0), half)], tirx.max(*pair))
        half //= 2
    return tirx.BufferLoad(lanes, [int64(0)])


def _distribute(nest: Nest, keys: Keys, length: Extent, count: Extent) -> Callable[[Expr], Expr]:
    """Return the places of the first elements by their order. An element is its place above its key turned round here,
    which sorts the first ones to the front."""
    elements = nest.allocate("elements", (2 * length,), "int64")  # from one half to the other and back
    counts = nest.allocate("counts", (4 * _DIGITS,), "int32")
    begin = nest.allocate("begin", (1,), "int64")
    source = tirx.BufferLoad(begin, [int64(0)])
    nest.store(begin, [int64(0)], int64(0))

    def turned(at: Expr) -> Expr:
        return tirx.reinterpret("uint32", tirx.bitwise_xor(keys(at, 1), tirx.max_value("int32")))

    def digit(value: Expr, byte: int) -> Expr:
        return byte * _DIGITS + tirx.bitwise_and(tirx.shift_right(value, int64(8 * byte)), int64(_DIGITS - 1))

    def take(at: Expr) -> Expr:
        """Return how often this was called with `at` so far."""
        taken = nest.settle("taken", tirx.BufferLoad(counts, [at]))
        nest.store(counts, [at], taken + 1)
        return taken.astype("int64")

    is_chosen = _choose(nest, turned, length, count)
    kept = nest.allocate("kept", (1,), "int64")
    size = tirx.BufferLoad(kept, [int64(0)])
    nest.store(kept, [int64(0)], int64(0))
    with nest.loop("i", length) as i:
        key = nest.settle("key", turned(i))
        nest.store(elements, [size], tirx.bitwise_or(tirx.shift_left(i, int64(32)), key.astype("int64")))
        nest.store(kept, [int64(0)], size + is_chosen(key))
    with nest.loop("i", 4 * _DIGITS) as i:
        nest.store(counts, [i], tirx.const(0, "int32"))
    with nest.loop("i", size) as i:
        element = nest.settle("element", tirx.BufferLoad(elements, [i]))
        for byte in range(4):
            take(digit(element, byte))
    for byte in range(4):
        any_digit = digit(tirx.BufferLoad(elements, [source]), byte)
        with nest.when(tirx.BufferLoad(counts, [any_digit]).astype("int64") < size):  # else all have the same
            before = nest.allocate("before", (1,), "int32")
            sum_before = tirx.BufferLoad(before, [int64(0)])
            nest.store(before, [int64(0)], tirx.const(0, "int32"))
            with nest.loop("i", _DIGITS) as i:
                found = nest.settle("found", tirx.BufferLoad(counts, [byte * _DIGITS + i]))
                nest.store(counts, [byte * _DIGITS + i], sum_before)
                nest.store(before, [int64(0)], sum_before + found)
            with nest.loop("i", size) as i:
                element = nest.settle("element", tirx.BufferLoad(elements, [source + i]))
                nest.store(elements, [length - source + take(digit(element, byte))], element)
            nest.store(begin, [int64(0)], length - source)
    return lambda j: tirx.shift_right(tirx.BufferLoad(elements, [source + j]), int64(32))


def _choose(nest: Nest, turned: Callable[[Expr], Expr], length: Extent, count: Extent) -> Callable[[Expr], Expr]:
    """Return 1 for keys that may be among the first, and 0 for others: by what bins of their upper bits hold."""
    shift = tirx.const(32 - _BIN_BITS, "uint32")
    bins = nest.allocate("bins", (1 << _BIN_BITS,), "int32")
    so_far, last = (nest.allocate(name, (1,), "int64") for name in ("so_far", "last"))
    held, bound = (tirx.BufferLoad(each, [int64(0)]) for each in (so_far, last))
    wanted = nest.settle("wanted", int64(count))
    is_many = 2 * wanted >= nest.settle("size", int64(length))
    nest.store(last, [int64(0)], tirx.Select(is_many, int64(1 << _BIN_BITS), int64(0)))
    with nest.when(tirx.Not(is_many)):
        nest.store(so_far, [int64(0)], int64(0))
        with nest.loop("i", 1 << _BIN_BITS) as i:
            nest.store(bins, [i], tirx.const(0, "int32"))
        with nest.loop("i", length) as i:
            at = nest.settle("bin", tirx.shift_right(turned(i), shift).astype("int64"))
            nest.store(bins, [at], tirx.BufferLoad(bins, [at]) + 1)
        with nest.loop("i", 1 << _BIN_BITS) as i:
            nest.store(so_far, [int64(0)], held + tirx.BufferLoad(bins, [i]).astype("int64"))
            nest.store(last, [int64(0)], bound + (held < wanted).astype("int64"))
    limit = nest.settle("limit", bound)
    return lambda key: (tirx.shift_right(key, shift).astype("int64") <= limit).astype("int64")


def _split(line: Expr, extents: Sequence[Extent]) -> list[Expr]:
    """Return the indices of a row."""
    indices: list[Expr] = []
    for extent in reversed(extents):
        size = max(extent, 1) if isinstance(extent, int) else tirx.max(extent, int64(1))  # none has a body too
        indices.append(tirx.floormod(line, int64(size)))
        line = tirx.floordiv(line, int64(size))
    return indices[::-1]


def _product(extents: Sequence[Extent]) -> Extent:
    found: Extent = 1
    for extent in extents:
        found = found * extent
    return found
