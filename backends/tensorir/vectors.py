"""Vector loops over one axis, without scalar tails.

A rest that does not fill a vector is computed by one more full vector that ends where the axis ends: some elements are
computed twice, with the same result. This keeps every access a plain vector access on AVX2 and AVX-512 alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from tvm import tirx
from tvm.ir import Var
from tvm.tirx import ForKind

from backends.tensorir.emit import Expr, Nest, int64, ramp, splat
from backends.tensorir.extents import Extent
from backends.tensorir.flat_buffers import flat_buffer, load_flat, store_flat

Learn = Callable[[Var, Extent], None]
"""Hears that a variable is below a number, and at least 0."""


def fitting_lanes(extent: int, lanes: int) -> int:
    """Return the widest power of two of at most `lanes` lanes that an axis fills."""
    while lanes > extent:
        lanes //= 2
    return max(lanes, 1)


def map_vectors(nest: Nest, begin: Expr, extent: int, *, lanes: int, unroll: int, learn: Learn) -> Iterator[Expr]:
    """Yield the positions of [begin, begin + extent), each inside of the loops that run over it.

    `learn` hears of each loop's variable first: of `(v // 4 + row % 3) // 3` for a v that it knows nothing of, as a
    gather reads indices through a reshape, TVM's FlattenBuffer made another number.

    ```
    for i in range(extent // (lanes * unroll)):
        for u in T.unroll(unroll):
            for v in T.vectorized(lanes): body(begin + (i * unroll + u) * lanes + v)
    for i in range(rest // lanes):
        for v in T.vectorized(lanes): ...
    for v in T.vectorized(lanes): body(begin + extent - lanes + v)      # only where lanes do not divide extent
    ```
    """
    lanes = fitting_lanes(extent, lanes)
    step = lanes * unroll
    main, rest = extent // step, extent % step // lanes
    if main:
        with nest.run("i", main) as i:
            learn(i, main)
            with nest.run("u", unroll, ForKind.UNROLLED) as u:
                learn(u, unroll)
                yield from _lanes(nest, begin + i * step + u * lanes, lanes, learn)
    if rest:
        with nest.run("i", rest) as i:
            learn(i, rest)
            yield from _lanes(nest, begin + int64(main * step) + i * lanes, lanes, learn)
    if extent % lanes:
        yield from _lanes(nest, begin + int64(extent - lanes), lanes, learn)


def open_vectors(
    nest: Nest, begin: Expr, extent: Expr, *, lanes: int, unroll: int, learn: Learn, masks: bool
) -> Iterator[Expr]:
    """Yield positions as `map_vectors` does, each of them once, of as many as a call says.

    ```
    for i in range(extent // (lanes * unroll)):
        for u in T.unroll(unroll):
            for v in T.vectorized(lanes): body(begin + (i * unroll + u) * lanes + v)
    for i in range(ceil(rest / lanes)):
        for v in T.vectorized(lanes): body(begin + extent - rest + i * lanes + v)       # lanes past the end are idle
    ```
    Without `masks` the rest is scalar, behind whole vectors: idle lanes would load from addresses, or divide by
    numbers, that are none.
    """
    first, rest = begin, extent
    if lanes > 1:
        step = lanes * unroll
        with nest.run("i", extent // step) as i:
            learn(i, extent // step)
            with nest.run("u", unroll, ForKind.UNROLLED) as u:
                learn(u, unroll)
                yield from _lanes(nest, begin + i * step + u * lanes, lanes, learn)
        first, rest = begin + extent // step * step, extent % step
    if lanes > 1 and not masks and unroll > 1:
        with nest.run("i", rest // lanes) as i:
            learn(i, rest // lanes)
            yield from _lanes(nest, first + i * lanes, lanes, learn)
        first, rest = first + rest // lanes * lanes, rest % lanes
    width = lanes if masks else 1
    many = (rest + (width - 1)) // width
    with nest.run("i", many) as i:
        learn(i, many)
        if width == 1:
            yield first + i
            return
        with nest.masked(rest - i * width):
            yield from _lanes(nest, first + i * width, width, learn)


def _lanes(nest: Nest, begin: Expr, lanes: int, learn: Learn) -> Iterator[Expr]:
    with nest.run("v", lanes, ForKind.VECTORIZED) as v:
        learn(v, lanes)
        yield begin + v


@contextmanager
def side_by_side(nest: Nest, width: int, lanes: int) -> Iterator[tuple[Expr, Expr]]:
    """Open loops over `width` vectors, which are unrolled, and over the lanes of one."""
    with nest.run("u", width, ForKind.UNROLLED) as u, nest.run("v", lanes, ForKind.VECTORIZED) as v:
        yield u, v


def fold_lanes(nest: Nest, vectors: Sequence[Expr], lanes: int, dtype: str, combine: Any) -> Expr:
    """Combine `vectors`, and halve the result until one lane is left; return that lane.

    What is read twice goes to a buffer, which LLVM keeps in a register: TVM's simplifier puts the values of variables
    in their places, and a maximum over 16 lanes, each step of which reads both halves twice, took LLVM 0.6 s.

    Whole numbers are folded in vectors of all lanes, half of which nobody reads: of sums of products of uint8 and int8
    LLVM makes `vpdpbusd`, and, as it counts the folds that are left to do by the lanes of the last one (its
    `combineVPDPBUSDPattern`, in LLVM 22.1), it left out those before: a product of 8 steps was that of the first 4.
    """

    keep = partial(_kept, nest, dtype)
    vector, *others = vectors
    for other in others:
        vector = keep(combine(vector, other), lanes)
    is_whole, left = dtype.startswith(("int", "uint")), lanes
    while left > 1:
        left //= 2
        kept = lanes if is_whole else left
        low = vector if is_whole else _shuffled(vector, range(left))
        high = _shuffled(vector, ((i + left) % (2 * left) for i in range(kept)))
        vector = keep(combine(low, high), kept)
    return _shuffled(vector, [0]) if is_whole and lanes > 1 else vector


def sum_square(nest: Nest, vectors: Sequence[Expr], lanes: int) -> Expr:
    """Return the vector of the sums over the lanes of each of `lanes` vectors of float32.

    Of vectors i and i + half one is made that keeps what is left of the first in the lanes without the bit `half`, and
    of the second in those with it; `half` is lanes / 2, then lanes / 4, and so on.
    """
    vectors, half = [_kept(nest, "float32", vector, lanes) for vector in vectors], lanes // 2
    while half:
        own = [lane + lanes * bool(lane & half) for lane in range(lanes)]
        other = [lane ^ half for lane in own]
        pairs = zip(vectors[:half], vectors[half:], strict=True)
        vectors = [_kept(nest, "float32", _mixed(*pair, own) + _mixed(*pair, other), lanes) for pair in pairs]
        half //= 2
    return vectors[0]


def _mixed(first: Expr, second: Expr, lanes: Iterable[int]) -> Expr:
    return tirx.Shuffle([first, second], [tirx.const(lane, "int32") for lane in lanes])


def _kept(nest: Nest, dtype: str, value: Expr, width: int) -> Expr:
    """Return a vector from a buffer, which LLVM keeps in a register."""
    buffer = flat_buffer(width, dtype, f"fold{width}")
    position = ramp(int64(0), width)
    nest.extend([tirx.AllocBuffer(buffer), store_flat(buffer, position, value)])
    return load_flat(buffer, position)


def _shuffled(vector: Expr, lanes: Iterable[int]) -> Expr:
    return tirx.Shuffle([vector], [tirx.const(lane, "int32") for lane in lanes])


def load_first(first: tirx.BufferLoad, many: Expr, lanes: int) -> Expr:
    """Return `many` elements from that of `first` on, and zeros in the other lanes, which are not read."""
    mask = tirx.Ramp(int64(0), int64(1), lanes) < splat(many, lanes)
    zeros = splat(tirx.const(0, "float32"), lanes)
    return tirx.call_llvm_intrin(f"float32x{lanes}", "llvm.masked.load", tirx.address_of(first), mask, zeros)
