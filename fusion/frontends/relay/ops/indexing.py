"""Reads and writes at positions that are data."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax
from tvm.relax import Expr

from fusion.constants import constant
from fusion.declined import Declined
from fusion.frontends.relay.call import Call, scalar, shape_of
from fusion.frontends.relay.ops.dtypes import as_dtype, filled
from fusion.frontends.relay.ops.reshape import broadcast, permuted, reshaped
from fusion.frontends.relay.registry import translates


@translates("take")
def take(call: Call) -> Expr:
    """Slices along an axis, or elements of the flattened operand, at positions of any shape."""
    axis, batch = call.optional_integer("axis"), call.integer("batch_dims", 0)
    x = call.emit(reshaped(call.x(0), (math.prod(call.shape(0)),))) if axis is None else call.x(0)
    along = 0 if axis is None else call.axis_of(axis)
    batch += call.rank(1) if batch < 0 else 0
    indices = _within(call, shape_of(x)[along])
    if not batch:
        return relax.op.take(x, indices, along)
    return _take_by_batch(call, call.emit(indices), along, batch)


def _within(call: Call, size: int) -> Expr:
    """Return the indices of a take, moved into an axis of `size` as its mode says."""
    mode = call.text("mode", "clip")
    if mode not in ("clip", "wrap", "fast"):
        raise Declined(f"mode {mode}")
    if call.is_const(1):
        given = call.const(1).astype("int64")
        moved = {"clip": given.clip(0, size - 1), "wrap": given % size, "fast": given}[mode]
        return constant(moved.astype(call.dtype(1)))
    if mode == "fast":
        return call.x(1)
    # The size may lie beyond a narrow dtype of the indices.
    dtype = call.dtype(1) if np.iinfo(call.dtype(1)).max >= size else "int64"
    indices = as_dtype(call.x(1), dtype)
    if mode == "wrap":
        return relax.op.floor_mod(indices, scalar(size, dtype))
    return relax.op.minimum(relax.op.maximum(indices, scalar(0, dtype)), scalar(size - 1, dtype))


def _take_by_batch(call: Call, indices: Expr, axis: int, batch: int) -> Expr:
    """Take with the first `batch` axes in common: the axis is brought behind them and one gather_nd is left."""
    data, places = call.shape(0), call.shape(1)
    if not batch <= min(axis, len(places)) or data[:batch] != places[:batch]:
        raise Declined(f"batch_dims {batch} of {data} and {places}")
    order = [*range(batch), axis, *range(batch, axis), *range(axis + 1, len(data))]
    brought = call.emit(permuted(call.x(0), order))
    tuples = call.emit(as_dtype(call.emit(reshaped(indices, (*places, 1))), "int64"))
    found = call.emit(relax.op.gather_nd(brought, tuples, batch))
    middle, own = axis - batch, len(places) - batch
    # gather_nd gives batch, own axes of the indices, axes before `axis`, axes behind it.
    back = [*range(batch), *(batch + own + at for at in range(middle)), *range(batch, batch + own),
            *range(batch + own + middle, len(shape_of(found)))]
    return permuted(found, back)


@translates("gather")
def gather(call: Call) -> Expr:
    """result[i, j] = data[indices[i, j], j] for axis 0; each other index runs over the front of its axis."""
    axis, data, places = call.axis("axis", 0), call.shape(0), call.shape(1)
    room = [math.inf if at == axis else extent for at, extent in enumerate(data)]
    if len(data) != len(places) or any(place > most for place, most in zip(places, room, strict=True)):
        raise Declined(f"indices {places} of data {data}")
    return relax.op.gather_elements(call.x(0), as_dtype(call.x(1), "int64"), axis)


@translates("gather_nd")
def gather_nd(call: Call) -> Expr:
    """Slices at index tuples, which are the columns of operand 1."""
    return relax.op.gather_nd(call.x(0), _tuples_last(call), call.integer("batch_dims", 0))


def _tuples_last(call: Call) -> Expr:
    """Return operand 1, index tuples along axis 0, as int64 with those tuples along the last axis."""
    rank = call.rank(1)
    if call.shape(1)[0] > call.rank(0):
        raise Declined(f"index tuples of {call.shape(1)[0]} into {call.rank(0)} axes")
    return call.emit(as_dtype(call.emit(permuted(call.x(1), [*range(1, rank), 0])), "int64"))


@translates("scatter_elements")
def scatter_elements(call: Call) -> Expr:
    return _scatter_elements(call, call.text("reduction", "update"))


def _scatter_elements(call: Call, reduction: str) -> Expr:
    if reduction not in ("update", "add", "mul", "mean", "min", "max"):
        raise Declined(f"reduction {reduction}")
    if call.shape(1) != call.shape(2):
        raise Declined(f"indices {call.shape(1)} of updates {call.shape(2)}")
    indices = as_dtype(call.x(1), "int64")
    return relax.op.scatter_elements(call.x(0), indices, call.x(2), call.axis("axis", 0), reduction)


@translates("scatter", "scatter_add")
def scatter(call: Call) -> Expr:
    """What became `scatter_elements` in TVM 0.12."""
    return _scatter_elements(call, "add" if call.operator == "scatter_add" else "update")


@translates("scatter_nd")
def scatter_nd(call: Call) -> Expr:
    """Operand 0 with the slices of operand 2 at index tuples, which are the columns of operand 1."""
    mode = call.text("mode", "update")
    if mode not in ("update", "add", "mul", "min", "max"):
        raise Declined(f"mode {mode}")
    wanted = (*call.shape(1)[1:], *call.shape(0)[call.shape(1)[0] :])
    if call.shape(2) != wanted:
        raise Declined(f"updates {call.shape(2)}, not {wanted}")
    return relax.op.scatter_nd(call.x(0), _tuples_last(call), call.x(2), mode)


@translates("adv_index")
def adv_index(call: Call) -> Expr:
    """data[i, j, ...] of integer tensors that broadcast, one for each axis from the first on."""
    data, *indices = call.fields(0)
    if not 0 < len(indices) <= len(shape_of(data)):
        raise Declined(f"{len(indices)} indices into {len(shape_of(data))} axes")
    common = np.broadcast_shapes(*map(shape_of, indices))
    wide = [call.emit(as_dtype(index, "int64")) for index in indices]
    whole = [call.emit(broadcast(index, common)) for index in wide]
    columns = [call.emit(reshaped(index, (*common, 1))) for index in whole]
    tuples = columns[0] if len(columns) == 1 else call.emit(relax.op.concat(columns, len(common)))
    return relax.op.gather_nd(data, tuples, 0)


@translates("sequence_mask")
def sequence_mask(call: Call) -> Expr:
    """Replace what lies behind the length of each sequence; axis 0 or 1 is time, the other one the batch."""
    axis, shape = call.axis("axis", 0), call.shape(0)
    if axis > 1 or call.shape(1) != (shape[1 - axis],):
        raise Declined(f"{call.shape(1)} lengths along axis {axis} of {shape}")
    time, batch = ([-1 if at == place else 1 for at in range(len(shape))] for place in (axis, 1 - axis))
    steps = constant(np.arange(shape[axis]).astype("int64").reshape(time))
    lengths = as_dtype(call.emit(relax.op.reshape(call.x(1), batch)), "int64")
    return relax.op.where(relax.op.less(steps, lengths), call.x(0), call.like(call.number("mask_value", 0.0)))


@translates("sparse_to_dense")
def sparse_to_dense(call: Call) -> Expr:
    return _densified(call, call.ints("output_shape"))


@translates("dyn.sparse_to_dense")
def dynamic_sparse_to_dense(call: Call) -> Expr:
    return _densified(call, call.const_ints(3))


def _densified(call: Call, shape: tuple[int, ...]) -> Expr:
    """The default with values at indices: one, a vector of them, or a matrix whose rows are index tuples."""
    count = call.shape(0)[0] if call.rank(0) else 1
    width = call.shape(0)[1] if call.rank(0) == 2 else 1
    if width != len(shape) or call.rank(0) > 2:
        raise Declined(f"indices {call.shape(0)} into {shape}")
    dtype = call.dtype(1)
    default = relax.op.full(shape, call.x(2), dtype) if len(call.operands) > 2 else filled(shape, 0, dtype)
    tuples = call.emit(reshaped(call.emit(as_dtype(call.x(0), "int64")), (count, width)))
    values = call.emit(broadcast(call.x(1), (count,)))
    return relax.op.scatter_nd(call.emit(default), tuples, values, "update")


@translates("argwhere")
def argwhere(call: Call) -> Expr:
    """Only of constants: otherwise the number of results depends on data."""
    return constant(np.argwhere(call.const(0)).astype("int32"))
