"""What counts the axes of an input: an axis, a list of axes, a permutation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fusion.frontends.onnx.node import Node, axis_error

_REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
)  # fmt: skip


@dataclass(frozen=True)
class _Axes:
    """Where a node names axes, and of what.

    Attributes:
        attribute: Its name; where a node has no such attribute, there is nothing to check.
        index: The input that newer operator sets have instead; None for an attribute alone.
        of: The input whose axes are counted.
        more: How many axes the counted tensor has beyond that input.
        end: Whether the axis may be the rank itself: a place between axes.
        distinct: Whether naming an axis twice is an error.
        older: The axis of nodes that name none, before operator set 13; None where any input has it.
        scalar: Whether a scalar passes for a row.
    """

    attribute: str = "axis"
    index: int | None = None
    of: int = 0
    more: int = 0
    end: bool = False
    distinct: bool = False
    older: int | None = None
    scalar: bool = True


_OLDER = 13
_AXES: Mapping[str, _Axes] = {
    **dict.fromkeys(
        (
            "ArgMax", "ArgMin", "Compress", "Concat", "Gather", "GatherElements", "LayerNormalization",
            "LpNormalization", "RMSNormalization", "ScatterElements", "Scatter", "Split", "SplitToSequence",
            "TensorScatter", "TopK",
        ),
        _Axes(),
    ),
    **dict.fromkeys(("Hardmax", "LogSoftmax", "Softmax"), _Axes(older=1, scalar=False)),
    **dict.fromkeys(_REDUCTIONS, _Axes("axes", 1)),
    "CenterCropPad": _Axes("axes", distinct=True),
    "CumProd": _Axes("", 1),
    "CumSum": _Axes("", 1),
    "DFT": _Axes("axis", 2),
    "Flatten": _Axes(end=True),
    "MeanVarianceNormalization": _Axes("axes"),
    "OneHot": _Axes(more=1),
    "Pad": _Axes("", 3, distinct=True),
    "Resize": _Axes("axes", distinct=True),
    "Slice": _Axes("axes", 3, distinct=True),
    "Squeeze": _Axes("axes", 1),
    "Transpose": _Axes("perm", distinct=True),
    "Unsqueeze": _Axes("axes", 1, distinct=True),
}  # fmt: skip


def axes_out_of_range(node: Node) -> Iterator[str]:
    """Yield which axes that `node` names its input has not, or it names twice."""
    where = _AXES.get(node.op)
    dims = None if where is None or node.proto.domain else node.dims(where.of)
    if where is None or dims is None:
        return
    if not dims and not where.scalar:
        yield "a scalar has no axes"
        return
    axes = _named(node, where)
    if axes is None:
        return
    rank = len(dims) + where.more + (len(axes) if node.op == "Unsqueeze" else 0)
    name = where.attribute or "the axis"
    for axis in axes:
        problem = axis_error(axis, rank, end=where.end)
        if problem:
            yield f"{name} is {axis}, {problem}"
    if where.distinct and len({axis % rank for axis in axes}) != len(axes):
        yield f"{name} {list(axes)} names an axis twice"
    if node.op == "Transpose" and axes and sorted(axes) != list(range(rank)):
        yield f"perm is {list(axes)}, and must be a permutation of the axes 0 to {rank - 1}"


def _named(node: Node, where: _Axes) -> Sequence[int] | None:
    """Return the axes that `node` names, None where only the run knows them or it names none."""
    named = node.known_ints(where.index, where.attribute)
    return [where.older] if named is None and where.older is not None and node.opset < _OLDER else named
