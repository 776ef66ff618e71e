"""What is taken by indices: all of it in its own order, as exporters write of masks, or rows of a normalisation or of
a cast behind it."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax import op

from fusion.rewrites.graph import CONSTANT, Emit, Value
from fusion.rewrites.rule import Example, Rule, normal


def _taken_in_order(root: Value) -> Value | None:
    """Return what `root` takes from, where it takes all of it in its own order."""
    data, indices = root.args
    if indices.op != CONSTANT or not data.shape:
        return None
    axis = root.attrs.axis
    extent = data.shape[0 if axis is None else int(axis)]
    in_order = np.array_equal(indices.array.reshape(-1), np.arange(extent))
    return data if in_order and (axis is not None or len(data.shape) == 1) else None


def _take_example(b: relax.BlockBuilder, x: relax.Var, last: int = 39) -> relax.Expr:
    places = np.append(np.arange(39), last).astype("int64").reshape(1, 1, 40)
    return op.exp(b.emit(op.take(x, relax.const(places), 1)))


IN_ORDER = Rule(
    name="in_order",
    form="take(x, [0, 1, 2, ...])  ->  reshape(x)",
    source="ONNX Runtime's GatherToSlice",
    assumes="the indices are all of the axis",
    roots=frozenset(("take",)),
    match=_taken_in_order,
    build=lambda emit, root, data: data.expr if data.shape == root.shape else op.reshape(data.expr, root.shape),
    example=Example(_take_example, ((3, 40),)),
    near_miss=Example(lambda b, x: _take_example(b, x, 38), ((3, 40),)),
)

_NORMS = frozenset(("nn.layer_norm", "nn.rms_norm"))


def _rows_of_norm(root: Value) -> Value | None:
    """Return the normalisation of which `root` takes rows."""
    norm, axis = root.data, root.attrs.axis
    if norm.op not in _NORMS or axis is None:
        return None
    rank = len(norm.shape)
    normalized = [int(each) % rank for each in norm.attrs.axes]
    return norm if normalized == list(range(int(axis) % rank + 1, rank))[-len(normalized) :] else None


def _norm_of_rows(emit: Emit, root: Value, norm: Value) -> relax.Expr:
    data, *weights = norm.args
    how, given = norm.attrs, [weight.expr for weight in weights]
    taken = emit(_taken_of(root, data))
    axes = list(range(-len(how.axes), 0))
    if norm.op == "nn.rms_norm":
        return op.nn.rms_norm(taken, *given, axes, float(how.epsilon))
    return op.nn.layer_norm(taken, *given, axes, float(how.epsilon), bool(how.center), bool(how.scale))


def _taken_of(root: Value, data: Value) -> relax.Expr:
    """Return what `root` takes, of other data."""
    call, (_, indices) = root.bound, root.args
    return relax.Call(call.op, [data.expr, indices.expr], call.attrs, call.ty_args)


def _norm_example(b: relax.BlockBuilder, x: relax.Var, axis: int = 1) -> relax.Expr:
    scale, shift = normal(40), normal(1, 40)
    norm = b.emit(op.nn.layer_norm(x, scale, b.emit(op.reshape(shift, (40,))), -1))
    return op.take(norm, relax.const(3, "int64"), axis)


ROWS_FIRST = Rule(
    name="rows_first",
    form="take(norm(x), rows)  ->  norm(take(x, rows))",
    source="folklore: a classifier reads the first token of the last normalisation",
    assumes="nobody else reads the normalisation, which is along later axes",
    roots=frozenset(("take",)),
    match=_rows_of_norm,
    build=_norm_of_rows,
    example=Example(_norm_example, ((2, 9, 40),)),
    near_miss=Example(lambda b, x: _norm_example(b, x, 2), ((2, 9, 40),)),
)


def _cast_of(root: Value) -> Value | None:
    """Return the cast of which `root` takes rows, all of which are there: integers have no NaN to stand for others."""
    return root.data if root.data.op == "astype" and str(root.attrs.mode) != "nan" else None


def _cast_example(b: relax.BlockBuilder, x: relax.Var, rows: int = 2) -> relax.Expr:
    places = relax.const(np.arange(rows, dtype="int64")[::-1].copy())
    return op.nn.relu(b.emit(op.take(b.emit(op.astype(x, "bfloat16")), places, 1)))


CAST_BEHIND = Rule(
    name="cast_behind",
    form="take(astype(x), rows)  ->  astype(take(x, rows))",
    source="folklore: half precision has a cast behind the last normalisation, of which a classifier reads one row",
    assumes="no index stands for NaN",
    roots=frozenset(("take",)),
    match=_cast_of,
    build=lambda emit, root, cast: op.astype(emit(_taken_of(root, cast.data)), root.dtype),
    example=Example(_cast_example, ((2, 9, 40),)),
    near_miss=Example(lambda b, x: _cast_example(b, x, 9), ((2, 9, 40),)),
)
