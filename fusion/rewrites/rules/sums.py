"""Sums over tensors that were put behind one another for it, as `torch.stack(parts).sum(0)` does."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax
from tvm.relax import op

from backends.tensorir.legalize.common import NARROW
from fusion.declined import Declined
from fusion.operators import OperatorKind, of_kind
from fusion.rewrites.graph import Emit, Value
from fusion.rewrites.rule import Example, Rule


def _stacked(root: Value) -> Sequence[Value] | None:
    """Return what `root` is the sum of: tensors of extent 1 along the axis on which they were joined.

    Raises:
        Declined: It is summed in a wider type.
    """
    joined = root.data
    if joined.op != "concat" or not joined.shape or joined.reads > 1 or joined.attrs.axis is None:
        return None
    rank, parts = len(joined.shape), joined.data.args
    axis, summed = int(joined.attrs.axis) % rank, root.attrs.axis
    if summed is None or [int(each) % rank for each in summed] != [axis]:
        return None
    if len(parts) < 2 or not all(part.shape and part.shape[axis] == 1 for part in parts):
        return None
    if root.dtype in NARROW:
        raise Declined(f"a sum of {root.dtype} is rounded once, additions each time")
    return parts


def _added(emit: Emit, root: Value, parts: Sequence[Value]) -> relax.Expr:
    total, *others = (_without_axis(emit, part, root) for part in parts)
    for other in others[:-1]:
        total = emit(op.add(total, other))
    return op.add(total, others[-1])


def _without_axis(emit: Emit, part: Value, root: Value) -> relax.Expr:
    if part.op in of_kind(OperatorKind.RESHAPE) and part.data.shape == root.shape:
        return part.data.expr
    return emit(op.reshape(part.expr, root.shape))


def _joined(b: relax.BlockBuilder, axis: int, *parts: relax.Expr) -> relax.Expr:
    return b.emit(op.concat([b.emit(op.expand_dims(part, axis)) for part in parts], axis))


STACKED_SUM = Rule(
    name="stacked_sum",
    form="sum(concat([expand_dims(x, a), expand_dims(y, a), ...], a), a)  ->  x + y + ...",
    source="WaveNet's skips; kernels in front add their part as they end",
    assumes="nothing but the order of additions",
    roots=frozenset(("sum",)),
    match=_stacked,
    build=_added,
    example=Example(lambda b, *x: op.sum(_joined(b, 1, *x), [1]), ((3, 5), (3, 5), (3, 5))),
    near_miss=Example(lambda b, *x: op.sum(b.emit(op.concat(list(x), 0)), [0]), ((1, 5), (2, 5))),
)
