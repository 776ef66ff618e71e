"""Operators that reduce axes."""

from __future__ import annotations

from tests.fuzz.draw import Draw
from tests.fuzz.operators.rows import row


@row(
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
)  # fmt: skip
def _reduce(d: Draw) -> None:
    log = d.schema.name == "ReduceLogSum"
    shape = d.main(0, 5, among="positive" if log else d.pick(("any", "any", "few", "around")))
    axes = d.axes(len(shape))
    if d.schema.since_version < 11:
        axes = [axis % len(shape) for axis in axes]
    if axes or not d.has("axes"):
        d.set("axes", axes)
    d.set("keepdims", d.number(0, 1))
    d.set("noop_with_empty_axes", d.number(0, 1))


@row("ArgMax", "ArgMin")
def _arg(d: Draw) -> None:
    shape = d.main(1, 4, among=d.pick(("any", "few")))
    d.set("axis", d.axis(len(shape)) if d.schema.since_version >= 11 else d.number(0, len(shape) - 1))
    d.set("keepdims", d.number(0, 1))
    d.set("select_last_index", d.number(0, 1))


@row("Softmax", "LogSoftmax", "Hardmax")
def _softmax(d: Draw) -> None:
    shape = d.main(1, 4)
    d.set("axis", d.axis(len(shape)) if d.schema.since_version >= 11 else d.number(0, len(shape) - 1))


@row("Det")
def _det(d: Draw) -> None:
    size = d.size(1, 5)
    d.input(0, (*d.shape(0, 2), size, size))
