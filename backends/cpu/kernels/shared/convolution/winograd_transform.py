"""Winograd's minimal filtering, F(m x m, 3 x 3): its transforms of inputs, weights and results.

An output tile of m x m is A^T [(G g G^T) * (B^T d B)] A with g the 3x3 kernel and d the (m + 2) x (m + 2) inputs under
the tile (Lavin and Gray, CVPR 2016; the matrices after Toom-Cook). The interpolation points 0, +-p for each p in
`pairs` and infinity decide the rounding error: for m = 4 and 256 channels the usual p = 1, 2 give 1.2e-5 of the
output's scale, p = 3/4, 3/2 give 2.9e-6, the least of the sets tried (the sum itself, in one chain: 1.8e-6). Points in
pairs also halve the work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Value = Any
"""A NumPy array, or a TensorIR vector: what can be added, and multiplied by a Python number."""
KERNEL = 3


@dataclass(frozen=True)
class Transform:
    """F(m x m, 3 x 3) at the points 0, +-p for each p in `pairs`, and infinity; m is twice the number of pairs.

    All rows stand in the order 0, p, -p, ..., infinity. `keep` makes a cheap stand-in for a value that is used twice.
    """

    pairs: tuple[float, ...]

    @property
    def tile(self) -> int:
        """Rows and columns of a tile of the result: m."""
        return 2 * len(self.pairs)

    @property
    def size(self) -> int:
        """Rows and columns of a tile of the input, and of the products."""
        return self.tile + KERNEL - 1

    def data(self, d: Sequence[Value], keep: Callable[[Value], Value]) -> list[Value]:
        """Return B^T d for `size` values: row p is the polynomial over all other points, with d for the powers of x."""
        every = _product_of(self.pairs)
        rows = [_sum(every, d[0::2])]
        for index, p in enumerate(self.pairs):
            others = _product_of(self.pairs[:index] + self.pairs[index + 1 :])
            odd, even = keep(_sum(others, d[1::2])), keep(_sum(others, d[2::2]))
            rows += [even + odd * p, even - odd * p]
        return [*rows, _sum(every, d[1::2])]

    def result(self, m: Sequence[Value], keep: Callable[[Value], Value]) -> list[Value]:
        """Return A^T m for `size` values: row i is the sum of the i-th powers of the points, times m."""
        zero, infinity, both = m[0], m[-1], list(zip(m[1:-1:2], m[2:-1:2], strict=True))
        sums, differences = [keep(a + b) for a, b in both], [keep(a - b) for a, b in both]
        rows = [_sum([p**row for p in self.pairs], differences if row % 2 else sums) for row in range(self.tile)]
        rows[0] = zero + rows[0]
        rows[-1] = rows[-1] + infinity
        return rows

    def weights(self, g: Sequence[Value], keep: Callable[[Value], Value]) -> list[Value]:
        """Return G g for the values of a kernel."""
        zero, *both, _ = self._powers()
        rows = [g[0] * zero[0]]
        for one, by_p, by_square in both[::2]:
            even, odd = keep(g[0] * one + g[2] * by_square), keep(g[1] * by_p)
            rows += [even + odd, even - odd]
        return [*rows, g[2]]

    def _powers(self) -> list[list[float]]:
        """Return G: row p has the powers of p over the product of its distances to all other points."""
        points = [0.0, *(sign * p for p in self.pairs for sign in (1, -1))]
        scale = [prod(p - other for other in points if other != p) for p in points]
        powers = [[p**power / by for power in range(KERNEL)] for p, by in zip(points, scale, strict=True)]
        return [*powers, [0.0, 0.0, 1.0]]

    def pack(self, packed: Array) -> Array:
        """Return weights [1, panels, 3, 3, I, lanes] as G g G^T [panels, size * size, I, lanes], in float64."""
        g = np.asarray(self._powers())
        _, panels, _, _, depth, lanes = packed.shape
        both = np.kron(g, g)
        result = np.empty((panels, self.size**2, depth * lanes), np.float32)
        # One product a panel, which stays in the cache: an einsum of all took ten times as long.
        for panel, taps in zip(result, packed.reshape(panels, KERNEL**2, -1), strict=True):
            panel[:] = both @ taps.astype(np.float64)
        return result.reshape(panels, self.size**2, depth, lanes)


F2 = Transform((1.0,))
F4 = Transform((0.75, 1.5))


def square(
    step: Callable[[Sequence[Value], Callable[[Value], Value]], list[Value]],
    values: Sequence[Sequence[Value]],
    keep: Callable[[Value], Value],
) -> list[list[Value]]:
    """Apply a one-dimensional transform to the columns of `values`, then to the rows; all is kept."""
    columns = [[keep(value) for value in step(list(column), keep)] for column in zip(*values, strict=True)]
    return [[keep(value) for value in step(list(row), keep)] for row in zip(*columns, strict=True)]


def _product_of(pairs: Sequence[float]) -> list[float]:
    """Return the coefficients of the product of (x^2 - p^2), those of the even powers in rising order."""
    return reduce(lambda c, p: [b - p * p * a for a, b in zip([*c, 0.0], [0.0, *c], strict=True)], pairs, [1.0])


def _sum(coefficients: Sequence[float], values: Sequence[Value]) -> Value:
    """Return the sum of coefficient times value, the last first; values beyond the coefficients are left out."""
    pairs = list(zip(coefficients, values, strict=False))[::-1]
    terms = [value if factor == 1 else value * factor for factor, value in pairs]
    return reduce(lambda total, term: total + term, terms)
