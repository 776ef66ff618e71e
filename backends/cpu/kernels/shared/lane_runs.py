"""Vectors whose lanes are stored in runs: behind a transposition, all channels of one head lie next to each other.

TVM does not see that `(x * 48 + lane) // 36` is the same for four lanes in a row. It divides vectors of 64-bit numbers,
which no instruction does, and stores each lane by itself: LLVM took 1.5 s for a kernel of three products.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from tvm import tirx
from tvm.ir import Var
from tvm.sym import Analyzer

from backends.tensorir.emit import Expr, int64
from backends.tensorir.inlining import uses
from backends.tensorir.stages import substitute
from fusion.structural import find, map_nodes

_SHORTEST = 4
DIVISIONS = (tirx.FloorDiv, tirx.FloorMod)


@dataclass(frozen=True)
class Runs:
    """The lanes of a vector in runs that lie next to each other.

    Attributes:
        length: Of one.
        run, inside: Which of them, and the lane in it.
        indices: Of the element there, contiguous in `inside`.
    """

    length: int
    run: Var
    inside: Var
    indices: Sequence[Expr]


def find_runs(indices: Sequence[Expr], lane: Var, lanes: int) -> Runs | None:
    """Return the longest runs of lanes that are stored at `indices`; None where a vector of all of them is as good, or
    none lie together."""
    divisions = (node for index in indices for node in find(index, DIVISIONS) if uses(node.a, lane))
    divisors = [node.b.value for node in divisions if isinstance(node.b, tirx.IntImm)]
    if not divisors:
        return None
    longest = gcd(lanes, *divisors)
    lengths = (longest >> power for power in range(longest.bit_length()) if longest >> power >= _SHORTEST)
    return next((runs for length in lengths if (runs := _in_runs_of(length, indices, lane)) is not None), None)


def is_contiguous(indices: Sequence[Expr], lane: Var) -> bool:
    """Return whether the lanes of a vector are stored next to each other."""
    *outer, last = indices
    return not any(uses(index, lane) for index in outer) and _counts(last, lane)


def _in_runs_of(length: int, indices: Sequence[Expr], lane: Var) -> Runs | None:
    run, inside = Var("run", "int64"), Var("lane", "int64")
    analyzer = Analyzer()

    def divide(node: Expr) -> Expr:
        """Return a division of `inside` and a multiple of the length, by another multiple, without `inside` in it."""
        if not uses(node.a, inside) or not isinstance(node.b, tirx.IntImm) or node.b.value % length:
            return node
        first = substitute(node.a, {inside: int64(0)})
        multiple = analyzer.modular_set(first)
        if multiple.coeff % length or multiple.base % length or not _counts(node.a, inside):
            return node
        divided = type(node)(first, node.b)
        return divided + inside if isinstance(node, tirx.FloorMod) else divided

    known = {lane: run * length + inside}
    found = [analyzer.simplify(map_nodes(substitute(index, known), (DIVISIONS, divide))) for index in indices]
    return Runs(length, run, inside, found) if is_contiguous(found, inside) else None


def _counts(index: Expr, lane: Var) -> bool:
    """Return whether an index is one more for each lane."""
    step = Analyzer().simplify(index - substitute(index, {lane: int64(0)}))
    return isinstance(step, Var) and step.same_as(lane)
