"""Sizes that only the model's declaration or the other operands tell, compared by the run with those that an operand
asks for.

    y [9, 4] = tile(x [3, 4], repeats)
->  checked = call_tir(check_size, repeats)    an ExecutionError where they are not [3, 1]
    y = take(tile(x, [3, 1])[None], checked[0] - 3)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod

import numpy as np
from onnx import TypeProto
from tvm import relax
from tvm.relax import Expr

from fusion.declined import Declined
from fusion.frontends.onnx.node import Node
from fusion.frontends.onnx.types import Shape, known_dims
from fusion.guards.check import check
from fusion.guards.conditions import Bounds
from fusion.guards.kinds import Guard


@dataclass(frozen=True)
class _Sizes:
    """What operands ask for, an int64 row, and what that must be for the known shape; `what` and `why` as in Guard."""

    asked: Expr
    wanted: Sequence[int]
    what: str = "a size is not the declared one"
    why: str = "the shapes in the model need {low}"


def convert_as_claimed(
    node: Node, claims: Sequence[TypeProto | None], convert: Callable[[Node], Expr | Sequence[Expr]]
) -> list[Expr]:
    """Return what `convert` makes of `node` for outputs of the types `claims`, computed where the run finds them right.

    Raises:
        Declined: Nothing tells whether they are right, or they are wrong.
    """
    shapes = [known_dims(claim) for claim in claims]
    known = [shape for shape in shapes if shape is not None]
    if not known or node.op not in _SIZES or node.proto.domain:
        raise Declined("the output shape depends on data")
    sizes = _SIZES[node.op](node, known)
    result = convert(replace(node, outputs=tuple(claims)))
    results = list(result) if isinstance(result, list | tuple) else [result]
    if not sizes.wanted:
        return results
    index = _checked_zero(node, sizes)
    return [_behind(node, expr, index) for expr in results]


def is_told_twice(node: Node) -> bool:
    """Return whether inference needs no value of operand 1, which only the run knows and which may contradict it."""
    return node.op in ("CumProd", "CumSum", "Expand") and not node.proto.domain and not node.is_const(1)


def _checked_zero(node: Node, sizes: _Sizes) -> Expr:
    """Return a zero that the run computes only where the sizes are right."""
    why = (f"{sizes.why}: it is {{value}}",) * len(sizes.wanted)
    conditions = tuple(Bounds(size, size) for size in sizes.wanted)
    guard = Guard("size", sizes.what, node.where, why, conditions)
    checked = node.emit(check(node.builder, node.emit(sizes.asked), guard))
    first = node.emit(relax.op.take(checked, relax.const(0, "int64"), 0))
    return node.emit(relax.op.subtract(first, relax.const(sizes.wanted[0], "int64")))


def _behind(node: Node, expr: Expr, index: Expr) -> Expr:
    """Return `expr` as a value that `index` is needed for."""
    return relax.op.take(node.emit(relax.op.expand_dims(node.emit(expr), 0)), index, 0)


def _row(node: Node, index: int) -> Expr:
    """Return an integer operand as a row of int64."""
    value = node.x(index) if node.dtype(index) == "int64" else relax.op.astype(node.x(index), "int64")
    return relax.op.reshape(value, (prod(node.shape(index)),))


def _const(values: Sequence[int]) -> Expr:
    return relax.const(np.asarray(values, dtype="int64"), "int64")


def _agree(held: bool) -> None:
    if not held:
        raise Declined("the declared shape is not what the operator computes")


def _tile(node: Node, shape: Shape) -> _Sizes:
    have = node.shape(0)
    _agree(len(have) == len(shape) and all(size and want % size == 0 for size, want in zip(have, shape, strict=True)))
    return _Sizes(_row(node, 1), [want // size for size, want in zip(have, shape, strict=True)])


def _expand(node: Node, shape: Shape) -> _Sizes:
    """An entry of 1 asks for the size that there is."""
    count = prod(node.shape(1))
    have = (1,) * (len(shape) - len(node.shape(0))) + node.shape(0)
    _agree(len(have) == len(shape) >= count and shape[: len(shape) - count] == have[: len(shape) - count])
    _agree(all(size in (1, want) for size, want in zip(have, shape, strict=True)))
    sizes, wanted = have[len(have) - count :], shape[len(shape) - count :]
    asked = node.emit(_row(node, 1))
    return _Sizes(relax.op.where(relax.op.equal(asked, _const([1] * count)), _const(sizes), asked), wanted)


def _cumulate(node: Node, shape: Shape) -> _Sizes:
    """The one axis of a row is 0 or -1."""
    _agree(len(shape) == 1)
    asked = node.emit(_row(node, 1))
    axis = relax.op.where(relax.op.equal(asked, _const([-1])), _const([0]), asked)
    return _Sizes(axis, [0], "an axis is none of its operand's", "{low} is the only one")


def _reshape(node: Node, shape: Shape) -> _Sizes:
    """-1 asks for what is left, 0 for the size that there is."""
    have = node.shape(0)
    _agree(node.shape(1) == (len(shape),) and prod(have) == prod(shape))
    asked = node.emit(_row(node, 1))
    if not node.attr("allowzero", 0):
        same = [have[axis] if axis < len(have) else -2 for axis in range(len(shape))]
        asked = node.emit(relax.op.where(relax.op.equal(asked, _const([0] * len(shape))), _const(same), asked))
    return _Sizes(relax.op.where(relax.op.equal(asked, _const([-1] * len(shape))), _const(shape), asked), shape)


def _sizes_of(index: int) -> Callable[[Node, Shape], _Sizes]:
    def find(node: Node, shape: Shape) -> _Sizes:
        rank = len(shape)
        axes = [int(axis) % rank for axis in node.attr("axes") or range(rank)]
        _agree(prod(node.shape(index)) == len(axes))
        return _Sizes(_row(node, index), [shape[axis] for axis in axes])

    return find


def _top_k(node: Node, shape: Shape) -> _Sizes:
    axis, have = node.axis(default=-1), node.shape(0)
    _agree(len(have) == len(shape) and shape[axis] <= have[axis])
    _agree(have[:axis] + have[axis + 1 :] == shape[:axis] + shape[axis + 1 :])
    return _Sizes(_row(node, 1), [shape[axis]])


def _one_hot(node: Node, shape: Shape) -> _Sizes:
    axis = node.axis(default=-1, rank=len(shape))
    _agree(shape[axis] > 0)
    _agree(shape[:axis] + shape[axis + 1 :] == node.shape(0))
    return _Sizes(_row(node, 1), [shape[axis]])


def _resize(node: Node, shape: Shape) -> _Sizes:
    _agree(node.has(3) and node.attr("keep_aspect_ratio_policy", "stretch") == "stretch")
    axes = [int(axis) % len(shape) for axis in node.attr("axes") or range(len(shape))]
    _agree(
        all(want == size or axis in axes for axis, (size, want) in enumerate(zip(node.shape(0), shape, strict=True)))
    )
    return _sizes_of(3)(node, shape)


def _split(node: Node, shapes: Sequence[Shape]) -> _Sizes:
    axis = node.axis()
    _agree(node.has(1) and len(shapes) == prod(node.shape(1)) == len(node.outputs))
    _agree(sum(shape[axis] for shape in shapes) == node.shape(0)[axis])
    return _Sizes(_row(node, 1), [shape[axis] for shape in shapes])


def _unpool(node: Node, shape: Shape) -> _Sizes:
    _agree(node.has(2) and node.shape(2) == (len(shape),))
    return _Sizes(_row(node, 2), shape)


def _range(node: Node, shape: Shape) -> _Sizes:
    rows = [node.emit(relax.op.reshape(node.x(index), (1,))) for index in range(3)]
    start, limit, delta = (node.emit(relax.op.astype(row, "float64")) for row in rows)
    _agree(len(shape) == 1)
    steps = relax.op.ceil(relax.op.divide(relax.op.subtract(limit, start), delta))
    steps = node.emit(relax.op.maximum(steps, relax.const(0.0, "float64")))
    endless = relax.op.equal(delta, relax.const(0.0, "float64"))
    return _Sizes(relax.op.astype(relax.op.where(endless, relax.const(-1.0, "float64"), steps), "int64"), shape)


def _slice(node: Node, shape: Shape) -> _Sizes:
    """The converter compares sizes itself; the axes are such as there are, each named once."""
    _agree(len(shape) == len(node.shape(0)))
    if not node.has(3) or node.is_const(3):
        return _Sizes(node.x(0), [])
    named = node.emit(relax.op.minimum(_times_named(node, 3, len(shape)), _const([1])))
    count = node.emit(relax.op.sum(named, keepdims=True))
    return _Sizes(count, [prod(node.shape(3))], "an axis is named twice, or none of its operand's", "{low} are given")


def _times_named(node: Node, index: int, rank: int) -> Expr:
    """Return how often operand `index` names each of the axes."""
    named = node.emit(_row(node, index))
    named = node.emit(relax.op.where(relax.op.less(named, _const([0])), relax.op.add(named, _const([rank])), named))
    hits = relax.op.equal(relax.op.expand_dims(named, 0), relax.const(np.arange(rank)[:, None], "int64"))
    return node.emit(relax.op.sum(node.emit(relax.op.astype(node.emit(hits), "int64")), [1]))


def _axes(node: Node, fits: Callable[[tuple[int, ...]], bool], rank: int) -> _Sizes:
    """The axes are the only ones that give the declared shape: which of all `rank` are named."""
    count = prod(node.shape(1))
    sets = [axes for axes in combinations(range(rank), count) if fits(axes)]
    _agree(len(sets) == 1)
    return _Sizes(_times_named(node, 1, rank), [int(axis in sets[0]) for axis in range(rank)])


def _squeeze(node: Node, shape: Shape) -> _Sizes:
    have = node.shape(0)
    return _axes(node, lambda axes: _without(have, axes) == shape and all(have[a] == 1 for a in axes), len(have))


def _unsqueeze(node: Node, shape: Shape) -> _Sizes:
    """The sizes that the named axes give, of which several sets may give the declared ones, and how many are named."""
    have, rank, count = node.shape(0), len(shape), prod(node.shape(1))
    _agree(len(have) + count == rank)
    named = _times_named(node, 1, rank)
    before = node.emit(relax.op.cumsum(named, 0, exclusive=True))
    place = node.emit(relax.op.minimum(relax.op.subtract(_const(range(rank)), before), _const([max(len(have) - 1, 0)])))
    kept = node.emit(relax.op.take(_const(have or (1,)), place, 0))
    sizes = node.emit(relax.op.where(relax.op.greater(named, _const([0])), _const([1]), kept))
    distinct = node.emit(relax.op.minimum(named, _const([1])))
    named_axes = node.emit(relax.op.sum(distinct, [0], keepdims=True))
    return _Sizes(node.emit(relax.op.concat([sizes, named_axes], 0)), [*shape, count])


def _reduced(node: Node, shape: Shape) -> _Sizes:
    have, keep = node.shape(0), node.attr("keepdims", 1) == 1
    kept = tuple(1 if keep else -1 for _ in have)

    def fits(axes: tuple[int, ...]) -> bool:
        sizes = (kept[axis] if axis in axes else size for axis, size in enumerate(have))
        return tuple(size for size in sizes if size >= 0) == shape

    if not prod(node.shape(1)):
        _agree(fits(() if node.attr("noop_with_empty_axes", 0) else tuple(range(len(have)))))
        return _Sizes(_row(node, 1), [])
    return _axes(node, fits, len(have))


def _without(shape: Shape, axes: tuple[int, ...]) -> Shape:
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def _of_first(find: Callable[[Node, Shape], _Sizes]) -> Callable[[Node, Sequence[Shape]], _Sizes]:
    return lambda node, shapes: find(node, shapes[0])


_OF_FIRST: Mapping[str, Callable[[Node, Shape], _Sizes]] = {
    **dict.fromkeys(
        (
            "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin",
            "ReduceProd", "ReduceSum", "ReduceSumSquare",
        ),
        _reduced,
    ),
    "CenterCropPad": _sizes_of(1),
    "ConstantOfShape": _sizes_of(0),
    "CumProd": _cumulate,
    "CumSum": _cumulate,
    "Expand": _expand,
    "MaxUnpool": _unpool,
    "OneHot": _one_hot,
    "Range": _range,
    "Reshape": _reshape,
    "Resize": _resize,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "TopK": _top_k,
    "Unsqueeze": _unsqueeze,
}  # fmt: skip
_SIZES = {"Split": _split, **{op: _of_first(find) for op, find in _OF_FIRST.items()}}
