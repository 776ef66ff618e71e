"""One operand of a product: where its elements are, and how many of them lie next to each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import Call, TensorLoad, Var
from tvm.sym import Analyzer

from backends.cuda.kernels.affine import analyzer_below
from backends.cuda.kernels.registers import ACCESS_BYTES
from backends.tensorir.accesses import flat_index, unravel
from backends.tensorir.emit import int64
from backends.tensorir.inlining import is_branch, uses
from backends.tensorir.stages import Axis, item_bytes_of, loads, shape_of, substitute
from fusion.declined import Declined

Expr = Any


@dataclass(frozen=True)
class MatrixOperand:
    """A matrix of each batch, `outer` times `depth`.

    Attributes:
        buffer: Where it is.
        batch: The variable of the batch; `outer` and `depth` are the others of `position` and `condition`.
        position: Where in the buffer an element is.
        condition: Where it is not zero; None where it never is.
        extent: Of `outer`; `depths` is that of `depth`.
        by_depth: Whether neighbours in memory are neighbours in depth; otherwise they are in `outer`.
        many: Elements that one copy of at most 16 bytes brings: their first is aligned, and all or none are zero.
    """

    buffer: Var
    batch: Var
    outer: Var
    depth: Var
    position: Expr
    condition: Expr | None
    extent: int
    depths: int
    by_depth: bool
    many: int

    @property
    def item_bytes(self) -> int:
        """Size of an element."""
        return item_bytes_of(self.buffer)

    def at(self, batch: Expr, outer: Expr, depth: Expr) -> tuple[Expr, list[Expr]]:
        """Return where an element is, and what has to hold for it to be there and not zero."""
        known = {self.batch: batch, self.outer: outer, self.depth: depth}
        conditions = [] if self.condition is None else [substitute(self.condition, known)]
        return substitute(self.position, known), conditions


def read_operand(value: Expr, batch: Sequence[Axis], outer: Sequence[Axis], depth: Sequence[Axis]) -> MatrixOperand:
    """Return what `value`, an expression over these axes, loads.

    Raises:
        Declined: It is no load of memory, or of zeros outside of a window.
    """
    condition = None
    if isinstance(value, Call) and is_branch(value):
        condition, value, otherwise = value.args
        if not isinstance(otherwise, tirx.FloatImm) or otherwise.value != 0:
            raise Declined("an operand is padded with another number than zero")
    if not isinstance(value, TensorLoad) or not value.indices or any(loads(index) for index in value.indices):
        raise Declined("an operand is computed inside of the kernel")
    groups = [(Var(name, "int64"), axes) for name, axes in (("batch", batch), ("outer", outer), ("depth", depth))]
    sizes = {var: prod(int(axis.extent) for axis in axes) for var, axes in groups}
    analyzer, place = analyzer_below(sizes.items()), dict[Var, Expr]()
    for var, axes in groups:
        place |= dict(zip((axis.var for axis in axes), unravel(var, [axis.extent for axis in axes]), strict=True))
    position = flat_index(shape_of(value.source), [substitute(index, place) for index in value.indices], analyzer)
    condition = None if condition is None else analyzer.simplify(substitute(condition, place))
    (at_batch, _), (at_outer, _), (at_depth, _) = groups
    widest = ACCESS_BYTES // item_bytes_of(value.source)
    runs = {along: _run(position, condition, along, sizes, widest) for along in (at_depth, at_outer)}
    adjoins = {along: _adjoins(position, along, sizes) for along in (at_depth, at_outer)}
    by_depth = (runs[at_depth], adjoins[at_depth]) >= (runs[at_outer], adjoins[at_outer])
    return MatrixOperand(
        value.source, at_batch, at_outer, at_depth, position=position, condition=condition,
        extent=sizes[at_outer], depths=sizes[at_depth],
        by_depth=by_depth, many=runs[at_depth] if by_depth else runs[at_outer],
    )  # fmt: skip


def _run(position: Expr, condition: Expr | None, along: Var, sizes: Mapping[Var, int], widest: int) -> int:
    """Return how many neighbours along one variable, a power of two, one aligned access brings wherever they begin."""
    many = widest
    while many > 1 and not _is_run(position, condition, along, sizes, many):
        many //= 2
    return many


def _adjoins(position: Expr, along: Var, sizes: Mapping[Var, int]) -> bool:
    """Return whether the first neighbours along one variable lie next to each other, be they aligned or not."""
    first, second = (Analyzer().simplify(substitute(position, {along: int64(at)})) for at in (0, 1))
    return sizes[along] > 1 and bool(Analyzer().can_prove_equal(second - first, int64(1)))


def _is_run(position: Expr, condition: Expr | None, along: Var, sizes: Mapping[Var, int], many: int) -> bool:
    if sizes[along] % many:
        return False
    run, lane = Var("run", "int64"), Var("lane", "int64")
    analyzer = analyzer_below({**sizes, run: sizes[along] // many, lane: many}.items())
    at = analyzer.simplify(substitute(position, {along: run * many + lane}))
    first = analyzer.simplify(substitute(at, {lane: int64(0)}))
    is_along = bool(analyzer.can_prove_equal(at - first, lane))
    is_aligned = bool(analyzer.can_prove_equal(tirx.floormod(first, int64(many)), int64(0)))
    if condition is None:
        return is_along and is_aligned
    of_run = analyzer.simplify(substitute(condition, {along: run * many + lane}))
    return is_along and is_aligned and not uses(of_run, lane)
