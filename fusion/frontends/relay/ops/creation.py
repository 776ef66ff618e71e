"""Tensors made from numbers, and patterns of positions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from tvm import relax
from tvm.relax import Expr

from fusion.constants import constant
from fusion.declined import Declined
from fusion.frontends.relay.call import Call, shape_of
from fusion.frontends.relay.ops.dtypes import as_dtype
from fusion.frontends.relay.ops.reshape import broadcast, reshaped
from fusion.frontends.relay.registry import translates
from fusion.tensors import numpy_dtype


@translates("full")
def full(call: Call) -> Expr:
    return _full(call, call.ints("shape"))


@translates("dyn.full")
def dynamic_full(call: Call) -> Expr:
    return _full(call, call.const_ints(1))


def _full(call: Call, shape: Sequence[int]) -> Expr:
    if call.shape(0):
        raise Declined(f"the value is of shape {call.shape(0)}")
    dtype = call.dtype_attribute("dtype", call.dtype(0))
    return relax.op.full(tuple(shape), as_dtype(call.x(0), dtype), dtype)


@translates("full_like")
def full_like(call: Call) -> Expr:
    if call.shape(1):
        raise Declined(f"the value is of shape {call.shape(1)}")
    return relax.op.full(call.shape(0), as_dtype(call.x(1), call.dtype(0)), call.dtype(0))


@translates("zeros", "ones", "dyn.zeros", "dyn.ones")
def initial(call: Call) -> Expr:
    shape = call.const_ints(0) if call.operands else call.ints("shape")
    function = relax.op.zeros if call.operator.endswith("zeros") else relax.op.ones
    return function(shape, call.dtype_attribute("dtype", "float32"))


@translates("arange")
def arange(call: Call) -> Expr:
    """start + step * (0, 1, ...) of constants, as long as it is before `stop`."""
    start, stop, step = (call.const(index).item() for index in range(3))
    count = math.ceil((stop - start) / step)
    if count < 0:
        raise Declined(f"from {start} to {stop} by {step}")
    call.require_room(count)
    dtype = numpy_dtype(call.dtype_attribute("dtype", call.dtype(0)))
    return constant((np.array(start, dtype) + np.array(step, dtype) * np.arange(count).astype(dtype)).astype(dtype))


@translates("meshgrid")
def meshgrid(call: Call) -> list[Expr]:
    """Each vector along an axis of its own; indexing `xy` exchanges the first two axes."""
    fields, order = call.fields(0), list(range(len(call.fields(0))))
    if call.text("indexing", "ij") == "xy" and len(order) >= 2:
        order[:2] = [1, 0]
    sizes = [math.prod(shape_of(field)) for field in fields]
    grid = tuple(sizes[at] for at in order)
    columns = [[sizes[at] if axis == at else 1 for axis in order] for at in range(len(fields))]
    reshapes = [reshaped(field, tuple(column)) for field, column in zip(fields, columns, strict=True)]
    return [broadcast(call.emit(column), grid) for column in reshapes]


@translates("one_hot")
def one_hot(call: Call) -> Expr:
    return _one_hot(call, call.integer("depth", 1))


@translates("dyn.one_hot")
def dynamic_one_hot(call: Call) -> Expr:
    return _one_hot(call, call.const_ints(3)[0])


def _one_hot(call: Call, depth: int) -> Expr:
    """`on` where the position along the new axis is the index, `off` elsewhere."""
    shape = call.shape(0)
    axis = call.axis("axis", -1, len(shape) + 1)
    call.require_room(depth)
    indices = call.emit(relax.op.reshape(call.x(0), (*shape[:axis], 1, *shape[axis:])))
    places = np.arange(depth).astype(call.dtype(0)).reshape([-1 if at == axis else 1 for at in range(len(shape) + 1)])
    dtype = call.dtype_attribute("dtype", call.dtype(1))
    on, off = (as_dtype(call.x(index), dtype) for index in (1, 2))
    return relax.op.where(relax.op.equal(indices, constant(places)), on, off)


@translates("trilu")
def trilu(call: Call) -> Expr:
    """Zero what lies below diagonal `k`, or above it where `upper` is false."""
    rows, columns = call.shape(0)[-2:]
    call.require_room(rows, columns)
    to_the_right = constant(np.arange(columns)[None, :] - np.arange(rows)[:, None])
    k = relax.op.astype(call.x(1), "int64")
    compare = relax.op.greater_equal if call.flag("upper", True) else relax.op.less_equal
    return relax.op.where(compare(to_the_right, k), call.x(0), call.like(0))


@translates("matrix_set_diag")
def matrix_set_diag(call: Call) -> Expr:
    """Matrices with diagonals `k1` to `k2` taken from operand 1, where each is a row, aligned left or right."""
    *batch, rows, columns = call.shape(0)
    low, high = call.integer("k1", 0), call.integer("k2", 0)
    right_above, right_below = call.flag("super_diag_right_align", True), call.flag("sub_diag_right_align", False)
    width = call.shape(1)[-1]
    if call.shape(1) != (*batch, *([high - low + 1] if low != high else []), width):
        raise Declined(f"diagonals {low} to {high} of {call.shape(0)} are not in {call.shape(1)}")
    call.require_room(rows, columns)
    row, column = np.indices((rows, columns))
    k = column - row
    above, below = np.minimum(columns - k, rows), np.minimum(columns, rows + k)
    offset = np.where(k >= 0, (width - above) * right_above, (width - below) * right_below) if low != high else 0
    inside = (k >= low) & (k <= high)
    source = np.where(inside, (high - k) * width + np.minimum(row, column) + offset, 0).reshape(-1)
    flat = call.emit(relax.op.reshape(call.x(1), (*batch, (high - low + 1) * width)))
    spread = call.emit(relax.op.take(flat, constant(source.astype("int64")), len(batch)))
    return relax.op.where(constant(inside), relax.op.reshape(spread, call.shape(0)), call.x(0))


@translates("invert_permutation")
def invert_permutation(call: Call) -> Expr:
    """The place at which each number of a permutation stands."""
    return relax.op.argsort(call.x(0), 0, False, call.dtype(0))


@translates("unravel_index")
def unravel_index(call: Call) -> Expr:
    """Positions in a flattened tensor of the shape in operand 1 as indices of its axes, one row an axis."""
    shape = call.const_ints(1)
    if call.rank(0) > 1:
        raise Declined(f"positions of rank {call.rank(0)}")
    column = [-1] + [1] * call.rank(0)
    inner = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    steps, sizes = (constant(np.array(row, call.dtype(0)).reshape(column)) for row in (inner, shape))
    return relax.op.floor_mod(relax.op.floor_divide(call.x(0), steps), sizes)
