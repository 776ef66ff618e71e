"""How far a memory access moves when an axis advances by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import Range, TensorLoad, Var
from tvm_ffi.structural import structural_equal

from backends.tensorir.extents import Extent, is_same
from backends.tensorir.inlining import Resolver, guards, uses
from backends.tensorir.open_analyzer import Analyzer, analyzer_of
from backends.tensorir.stages import Axis, Stage, dims_of, item_bytes_of, substitute
from fusion.structural import contains, map_nodes

Expr = Any


@dataclass(frozen=True)
class Access:
    """One load or the store of a stage.

    Attributes:
        buffer: What is accessed.
        indices: One per dimension, over the stage's axes.
        steps: For each axis the distance in elements between neighbours; None where it is not constant.
    """

    buffer: Var
    indices: tuple[Expr, ...]
    steps: Mapping[Var, Extent | None]

    def is_same(self, other: Access) -> bool:
        """Return whether both are of one element."""
        return bool(self.buffer.same_as(other.buffer) and structural_equal(self.indices, other.indices))


@dataclass(frozen=True)
class Accesses:
    """All accesses of a stage, and the axes on which a branch condition in it depends.

    Attributes:
        counted: The axes of which the value takes more than what lies there, where symbols are extents: to walk two of
            them as one, each element would divide by a symbol.
    """

    store: Access
    loads: tuple[Access, ...]
    guarded: frozenset[Var]
    counted: frozenset[Var] = frozenset()

    @property
    def all(self) -> tuple[Access, ...]:
        """The store and the loads."""
        return (self.store, *self.loads)

    @property
    def distinct(self) -> tuple[Access, ...]:
        """The store and the loads, of those of the same element one."""
        kept: list[Access] = []
        for access in self.all:
            if not any(access.is_same(other) for other in kept):
                kept.append(access)
        return tuple(kept)

    @property
    def element_bytes(self) -> int:
        """Size of the widest element that the stage touches, in bytes."""
        return max(item_bytes_of(access.buffer) for access in self.all)


def flat_index(shape: Sequence[Extent], indices: Sequence[Expr], analyzer: Analyzer) -> Expr:
    """Return the row-major position of an element, simplified; 0 of a tensor without axes."""
    flat = indices[0] if indices else tirx.IntImm("int64", 0)
    for extent, index in zip(shape[1:], indices[1:], strict=True):
        flat = flat * extent + index
    return analyzer.simplify(flat)


def stage_accesses(stage: Stage, inlined: Mapping[Var, Stage]) -> Accesses:
    """Return how a stage moves through memory, with everything inlined that is not in memory."""
    axes = stage.spatial + stage.reduce
    analyzer = analyzer_of([axis.extent for axis in axes])
    for axis in axes:
        analyzer.bind(axis.var, range_of(axis))
    found: list[tuple[Var, tuple[Expr, ...]]] = []

    def record(buffer: Var, indices: Sequence[Expr]) -> Expr:
        found.append((buffer, tuple(indices)))
        return tirx.BufferLoad(buffer, list(indices))

    resolver = Resolver(inlined, record, analyzer)
    value = resolver.resolve(stage.value, {})
    everything = [(stage.buffer, tuple(stage.indices)), *found]
    accesses = [Access(buffer, indices, _steps(buffer, indices, axes, analyzer)) for buffer, indices in everything]
    conditions = [guard for part in [value, *_bound(resolver)] for guard in guards(part)]
    guarded = frozenset(axis.var for axis in axes if any(uses(condition, axis.var) for condition in conditions))
    if all(isinstance(axis.extent, int) for axis in axes):
        return Accesses(accesses[0], tuple(accesses[1:]), guarded)
    loaded = (TensorLoad, lambda load: Var("loaded", load.ty))
    values = [map_nodes(part, loaded) for part in [value, *_bound(resolver)]]
    counted = frozenset(axis.var for axis in axes if any(uses(part, axis.var) for part in values))
    return Accesses(accesses[0], tuple(accesses[1:]), guarded, counted)


def _bound(resolver: Resolver) -> list[Expr]:
    return [bound for _, bound in resolver.bindings]


def range_of(axis: Axis) -> Range:
    """Return the range of an axis as TVM's analyzer takes it."""
    extent = tirx.const(axis.extent, axis.var.ty.dtype) if isinstance(axis.extent, int) else axis.extent
    return Range.from_min_extent(tirx.const(0, axis.var.ty.dtype), extent)


def _steps(
    buffer: Var, indices: tuple[Expr, ...], axes: tuple[Axis, ...], analyzer: Analyzer
) -> dict[Var, Extent | None]:
    if not indices:
        return {axis.var: 0 for axis in axes}
    flat = flat_index(dims_of(buffer), indices, analyzer)
    steps: dict[Var, Extent | None] = {}
    for axis in axes:
        if axis.extent == 1:
            steps[axis.var] = 0
            continue
        moved = substitute(flat, {axis.var: axis.var + tirx.const(1, axis.var.ty.dtype)})
        difference = analyzer.simplify(moved - flat)
        steps[axis.var] = _constant(difference, axes)
    return steps


def _constant(step: Expr, axes: Sequence[Axis]) -> Extent | None:
    """Return a step as an extent; None where it depends on where the axes are, or on data."""
    if isinstance(step, tirx.IntImm):
        return int(step.value)
    varies = contains(step, (TensorLoad, lambda load: True)) or any(uses(step, axis.var) for axis in axes)
    return None if varies else step


def unravel(index: Expr, shape: Sequence[Extent]) -> list[Expr]:
    """Return the indices of the row-major position `index` in `shape`; axes of extent 1 get 0."""
    indices: list[Expr] = []
    inner: Extent = 1
    outermost = next((axis for axis, extent in enumerate(shape) if extent != 1), 0)
    for axis in reversed(range(len(shape))):
        if shape[axis] == 1:
            indices.append(tirx.const(0, "int64"))
            continue
        position = index if is_same(inner, 1) else tirx.floordiv(index, inner)
        indices.append(position if axis == outermost else tirx.floormod(position, shape[axis]))
        inner *= shape[axis]
    return indices[::-1]
