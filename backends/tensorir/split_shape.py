"""Extents of a buffer some of which are a multiple of the size of one axis alone, taken apart: the heads of all
sequences behind one another, `[b * 6, n, 64]`, as `[b, 6, n, 64]`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import Var
from tvm.sym import Analyzer
from tvm_ffi.structural import structural_equal

Expr = Any


@dataclass(frozen=True)
class SplitShape:
    """Axes of a buffer.

    Attributes:
        dims: Their extents, two for each that is taken apart.
        counts: For each axis of the buffer how many of its neighbours have one place on the first of the two; 1 of one
            that is not taken apart.
    """

    dims: tuple[Expr, ...]
    counts: tuple[int, ...]

    @staticmethod
    def whole(shape: Sequence[Expr]) -> SplitShape:
        """Return the axes as they are."""
        return SplitShape(tuple(shape), (1,) * len(shape))

    @staticmethod
    def of(shape: Sequence[Expr], sizes: Sequence[Expr], multiples: Mapping[str, int]) -> SplitShape:
        """Return the axes with those apart whose extent is a multiple of one of the open `sizes`; `multiples` are of
        which number each symbol is one."""
        dims, counts = list[Expr](), list[int]()
        for dim in shape:
            counted = ((size, _multiple(dim, size, multiples)) for size in sizes)
            size, count = next((each for each in counted if each[1] > 1), (dim, 1))
            dims += [size] if count == 1 else [size, tirx.const(count, "int64")]
            counts.append(count)
        return SplitShape(tuple(dims), tuple(counts))

    def split(self, indices: Sequence[Expr]) -> list[Expr]:
        """Return the place on `dims` of an element of the buffer."""
        found = list[Expr]()
        for index, count in zip(indices, self.counts, strict=True):
            found += [index] if count == 1 else [tirx.floordiv(index, count), tirx.floormod(index, count)]
        return found

    def join(self, places: Sequence[Expr]) -> list[Expr]:
        """Return the indices in the buffer of what has these places on `dims`."""
        left = iter(places)
        return [next(left) if count == 1 else next(left) * count + next(left) for count in self.counts]


def _multiple(dim: Expr, size: Expr, multiples: Mapping[str, int]) -> int:
    """Return how many times as long as an open `size` an axis is; 0 where that is no number."""
    if isinstance(dim, tirx.IntImm) or isinstance(size, tirx.IntImm):
        return 0
    if isinstance(size, tirx.FloorDiv) and isinstance(size.b, tirx.IntImm) and structural_equal(size.a, dim):
        divisor = int(size.b.value)
        leaves_nothing = isinstance(dim, Var) and multiples.get(dim.name, 1) % divisor == 0
        return divisor if leaves_nothing else 0
    analyzer = Analyzer()
    count = analyzer.simplify(tirx.floordiv(dim, size))
    known = isinstance(count, tirx.IntImm) and analyzer.can_prove_equal(size * count, dim)
    return int(count.value) if known else 0
