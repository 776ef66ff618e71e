"""Vector loops over one axis, without scalar tails.

A rest that does not fill a vector is computed by one more full vector that ends where the axis ends: some elements are
computed twice, with the same result. This keeps every access a plain vector access on AVX2 and AVX-512 alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx
from tvm.ir import Var

from backends.tensorir.nests import allocate, index, load_flat, loop, sequence, store_flat, unrolled, vectorized

Expr = Any
Learn = Callable[[Var, int], None]
"""Hears that a variable is below a number, and at least 0."""


def fitting_lanes(extent: int, lanes: int) -> int:
    """Return the widest power of two of at most `lanes` lanes that an axis fills."""
    while lanes > extent:
        lanes //= 2
    return max(lanes, 1)


def map_vectors(
    begin: Expr, extent: int, body: Callable[[Expr], tirx.Stmt], *, lanes: int, unroll: int, learn: Learn
) -> tirx.Stmt:
    """Return loops that run `body` on every position of [begin, begin + extent).

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
    parts = []
    if main:

        def several(i: Var) -> tirx.Stmt:
            learn(i, main)
            return unrolled(unroll, lambda u: one(i, u))

        def one(i: Var, u: Var) -> tirx.Stmt:
            learn(u, unroll)
            return _lanes(begin + i * step + u * lanes, lanes, body, learn)

        parts.append(loop(main, several))
    if rest:

        def single(i: Var) -> tirx.Stmt:
            learn(i, rest)
            return _lanes(begin + index(main * step) + i * lanes, lanes, body, learn)

        parts.append(loop(rest, single))
    if extent % lanes:
        parts.append(_lanes(begin + index(extent - lanes), lanes, body, learn))
    return sequence(*parts)


def _lanes(begin: Expr, lanes: int, body: Callable[[Expr], tirx.Stmt], learn: Learn) -> tirx.Stmt:
    def lane(v: Var) -> tirx.Stmt:
        learn(v, lanes)
        return body(begin + v)

    return vectorized(lanes, lane)


def fold_lanes(vectors: Sequence[Expr], lanes: int, dtype: str, combine: Any) -> tuple[list[tirx.Stmt], Expr]:
    """Return statements that combine `vectors`, and halve the result until one lane is left, and that lane.

    What is read twice goes to a buffer, which LLVM keeps in a register: TVM's simplifier puts the values of variables
    in their places, and a maximum over 16 lanes, each step of which reads both halves twice, took LLVM 0.6 s.
    """
    statements: list[tirx.Stmt] = []

    def keep(value: Expr, width: int) -> Expr:
        buffer = allocate(width, dtype, f"fold{width}")
        position = tirx.Ramp(index(0), index(1), width) if width > 1 else index(0)
        statements.extend([tirx.AllocBuffer(buffer), store_flat(buffer, position, value)])
        return load_flat(buffer, position)

    vector, *others = vectors
    for other in others:
        vector = keep(combine(vector, other), lanes)
    while lanes > 1:
        lanes //= 2
        low = tirx.Shuffle([vector], [tirx.const(i, "int32") for i in range(lanes)])
        high = tirx.Shuffle([vector], [tirx.const(i + lanes, "int32") for i in range(lanes)])
        vector = keep(combine(low, high), lanes)
    return statements, vector
