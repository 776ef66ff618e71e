"""Reads a PrimFunc of TE-like blocks as a list of stages: each computes one buffer by one expression over axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, prod
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad, Var
from tvm.s_tir.stmt import SBlock, SBlockRealize

from backends.tensorir.extents import Extent, extent_of, is_same, is_within, typical
from fusion.declined import Declined
from fusion.structural import find, map_nodes
from partition.access import is_zero

Expr = Any
COMBINERS = (tirx.Add, tirx.Mul, tirx.Max, tirx.Min, tirx.And, tirx.Or)
_REDUCE_ITER = 2  # tirx.IterVar.CommReduce


@dataclass(frozen=True)
class Axis:
    """An iteration axis over [0, extent)."""

    var: Var
    extent: Extent


def is_at(index: Expr, axis: Axis) -> bool:
    """Return whether an index is the variable of an axis, or 0 where its extent is 1."""
    fixed = is_zero(index) and axis.extent == 1
    return fixed or (isinstance(index, Var) and index.same_as(axis.var))


@dataclass(frozen=True, eq=False)
class Stage:
    """`buffer[spatial] = value`, or `buffer[spatial] = combine over reduce of value` beginning with `identity`.

    Attributes:
        buffer: The buffer that is written.
        spatial: An axis for each dimension of the buffer, in order.
        reduce: The axes of the reduction.
        value: The expression over the axes, which loads other buffers.
        combine: The TensorIR class of the reduction's operator (Add, Max, ...); None without a reduction.
        identity: The initial value of the reduction.
        offsets: The start, in each dimension, of the slice of an output that is written; () if all of the buffer is.
    """

    buffer: Var
    spatial: tuple[Axis, ...]
    reduce: tuple[Axis, ...]
    value: Expr
    combine: Any = None
    identity: Expr = None
    offsets: tuple[Extent, ...] = ()

    @property
    def indices(self) -> list[Expr]:
        """The index that is written, over the axes."""
        return self.stored_at([axis.var for axis in self.spatial])

    def stored_at(self, position: Sequence[Expr]) -> list[Expr]:
        """Return the index in the buffer for a position of the spatial axes."""
        offsets = self.offsets or (0,) * len(position)
        return [index if offset == 0 else index + offset for index, offset in zip(position, offsets, strict=True)]

    def combined(self, first: Expr, second: Expr) -> Expr:
        """Return the combination of two partial results of the reduction.

        A maximum with a finite initial value is that of a softmax, where NaN propagate through the exponentials. So it
        needs no test for NaN, which `exact_values` adds to other maxima.
        """
        if self.is_softmax_maximum:
            return tirx.Select(first > second, first, second)
        return self.combine(first, second)

    @property
    def is_softmax_maximum(self) -> bool:
        """Whether this is the maximum of a softmax's row."""
        begins_finite = isinstance(self.identity, tirx.FloatImm) and isfinite(self.identity.value)
        return self.combine is tirx.Max and begins_finite

    @property
    def points(self) -> Extent:
        """How many times `value` is evaluated."""
        return prod(axis.extent for axis in self.spatial + self.reduce)

    @property
    def iterations(self) -> int:
        """`points` at typical sizes of symbols, for estimates."""
        return typical(self.points)


def read_stages(func: tirx.PrimFunc) -> list[Stage]:
    """Return the stages of `func`, in the order of execution.

    Raises:
        Declined: The function is not made of blocks, or a block is not one store over a whole buffer or a slice of an
            output.
    """
    root = func.body
    if not isinstance(root, SBlockRealize):
        raise Declined("the function is not made of blocks")
    body = root.block.body
    nests = list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]
    stages = [_read_nest(nest) for nest in nests]
    if len({stage.buffer for stage in stages}) != len(stages):
        raise Declined("two blocks write one buffer")
    sliced = {stage.buffer for stage in stages if stage.offsets}
    read = {load.source for stage in stages for load in loads(stage.value)} if sliced else set()
    if not sliced.issubset(func.params) or not sliced.isdisjoint(read):
        raise Declined("a block writes a part of a buffer that is no output")
    return stages


def output_buffers(func: tirx.PrimFunc, stages: list[Stage]) -> set[Var]:
    """Return the parameters that a stage writes."""
    written = {stage.buffer for stage in stages}
    return {param for param in func.params if param in written}


def loads(value: Expr) -> list[TensorLoad]:
    """Return the loads in an expression, including those in indices."""
    return find(value, TensorLoad)


def substitute(value: Expr, replacement: Mapping[Var, Expr]) -> Expr:
    """Return `value` with variables replaced."""
    if not replacement:
        return value
    return map_nodes(value, (Var, lambda var: replacement.get(var, var)))


def shape_of(buffer: Var) -> tuple[int, ...]:
    """Return the static shape of a buffer.

    Raises:
        Declined: A dimension is symbolic.
    """
    dims = dims_of(buffer)
    if not all(isinstance(dim, int) for dim in dims):
        raise Declined("a shape is symbolic")
    return dims


def dims_of(buffer: Var) -> tuple[Extent, ...]:
    """Return the shape of a buffer, which may have symbols."""
    return tuple([extent_of(dim) for dim in buffer.ty.shape[:]])


def dtype_of(buffer: Var) -> str:
    """Return the element type of a buffer."""
    return str(buffer.ty.dtype.dtype)


def item_bytes_of(buffer: Var) -> int:
    """Return the bytes of an element."""
    return int(tvm_ffi.dtype(dtype_of(buffer)).itemsize)


def _read_nest(nest: tirx.Stmt) -> Stage:
    extents: dict[Var, Extent] = {}
    while isinstance(nest, tirx.For):
        if nest.kind != tirx.ForKind.SERIAL:
            raise Declined("the loops are scheduled")
        extents[nest.loop_var] = extent_of(nest.extent)
        nest = nest.body
    if not isinstance(nest, SBlockRealize):
        raise Declined("a loop holds more than one block")
    return _read_block(nest, extents)


def _read_block(realize: SBlockRealize, extents: dict[Var, Extent]) -> Stage:
    block = realize.block
    if block.match_buffers or block.alloc_buffers or not isinstance(block.body, tirx.BufferStore):
        raise Declined(f"block {block.name_hint} is not a single store")
    axes: dict[Var, Axis] = {}
    reduce = []
    for iter_var, bound in zip(block.iter_vars, realize.iter_values, strict=True):
        axis = Axis(iter_var.var, extent_of(iter_var.dom.extent))
        whole = axis.extent == 1 or (isinstance(bound, Var) and is_same(extents.get(bound), axis.extent))
        if not whole:
            raise Declined(f"block {block.name_hint} covers its domain in an order that is not plain")
        if int(iter_var.iter_type) == _REDUCE_ITER:
            reduce.append(axis)
        else:
            axes[axis.var] = axis
    return _make_stage(block, axes, tuple(reduce))


def _make_stage(block: SBlock, axes: dict[Var, Axis], reduce: tuple[Axis, ...]) -> Stage:
    store = block.body
    shape = dims_of(store.buffer)
    stored = [_store_axis(index, extent, axes) for index, extent in zip(store.indices, shape, strict=True)]
    spatial = tuple(axis for axis, _ in stored)
    written = prod(axis.extent for axis in spatial)
    covered = prod(axis.extent for axis in axes.values())
    if len({axis.var for axis in spatial}) != len(spatial) or not is_same(covered, written):
        raise Declined(f"block {block.name_hint} does not write its whole buffer once")
    if block.init is None:
        if reduce or any(load.source.same_as(store.buffer) for load in loads(store.value)):
            raise Declined(f"block {block.name_hint} updates its buffer without an initial value")
        offsets = () if is_same(written, prod(shape)) else tuple(offset for _, offset in stored)
        return Stage(store.buffer, spatial, (), store.value, offsets=offsets)
    if not is_same(written, prod(shape)):
        raise Declined(f"block {block.name_hint} reduces into a part of its buffer")
    return _reduction(block, spatial, reduce)


def _store_axis(index: Expr, extent: Extent, axes: dict[Var, Axis]) -> tuple[Axis, Extent]:
    """Return the axis of `index`, and its offset in a dimension of this extent."""
    begin: Extent = 0
    if isinstance(index, tirx.Add) and isinstance(index.a, Var) and index.a in axes:
        index, begin = index.a, extent_of(index.b)
    if isinstance(index, Var) and index in axes and _is_slice(begin, axes[index].extent, extent, axes):
        return axes[index], begin
    if isinstance(index, tirx.IntImm) and int(index.value) == 0 and extent == 1:
        return Axis(Var("unit", index.ty), 1), 0
    raise Declined("a block stores to an index that is not one of its axes")


def _is_slice(begin: Extent, extent: Extent, whole: Extent, axes: Mapping[Var, Axis]) -> bool:
    """Return whether [begin, begin + extent) is a slice of [0, whole). If these are symbolic, all sizes that the kernel
    is called with are taken to fit: rows from `total - length` on, behind a cache, are inside of `total`, which cannot
    be proved from the symbols."""
    if all(isinstance(each, int) for each in (begin, extent, whole)):
        return is_within(begin, extent, whole)
    return isinstance(begin, int) or not any(var in axes for var in find(begin, Var))


def _reduction(block: SBlock, spatial: tuple[Axis, ...], reduce: tuple[Axis, ...]) -> Stage:
    store, update = block.body, block.body.value
    if not isinstance(block.init, tirx.BufferStore) or type(update) not in COMBINERS:
        raise Declined(f"block {block.name_hint} reduces by something else than + * max min")
    itself, term = update.a, update.b
    if not isinstance(itself, TensorLoad) or not itself.source.same_as(store.buffer):
        raise Declined(f"block {block.name_hint} does not combine with its own buffer")
    if any(load.source.same_as(store.buffer) for load in loads(term)):
        raise Declined(f"block {block.name_hint} reads its own buffer twice")
    return Stage(
        buffer=store.buffer, spatial=spatial, reduce=reduce, value=term, combine=type(update), identity=block.init.value
    )
