"""Normalising operators."""

from __future__ import annotations

from tests.fuzz.draw import Draw
from tests.fuzz.operators.rows import row

_EPSILONS = (1e-5, 1e-3, 0.1)


@row("BatchNormalization")
def _batch(d: Draw) -> None:
    shape = d.main(2, 5, 1)
    for position, among in ((1, "any"), (2, "any"), (3, "any"), (4, "positive")):
        d.input(position, (shape[1],), among)
    d.set("epsilon", float(d.pick(_EPSILONS)))
    d.set("momentum", 0.7)
    d.set("is_test", 1, always=True)
    d.set("consumed_inputs", [0, 0, 0, 1, 1], always=True)
    d.outputs = 1


@row("InstanceNormalization")
def _instance(d: Draw) -> None:
    shape = d.main(3, 5, 1)
    d.input(1, (shape[1],))
    d.input(2, (shape[1],))
    d.set("epsilon", 0.1, always=True)
    d.set("consumed_inputs", [0, 0, 0], always=True)


@row("GroupNormalization")
def _group(d: Draw) -> None:
    groups, each = d.number(1, 4), d.number(1, 4)
    d.input(0, (d.number(1, 2), groups * each, *d.shape(1, 3, 1)))
    size = groups if d.schema.since_version < 21 else groups * each
    d.input(1, (size,))
    d.input(2, (size,))
    d.set("num_groups", groups, always=True)
    d.set("epsilon", 0.1, always=True)


@row("LayerNormalization", "RMSNormalization")
def _layer(d: Draw) -> None:
    shape = d.main(1, 4, 1)
    axis = d.axis(len(shape))
    inner = shape[axis:] if axis >= 0 else shape[len(shape) + axis :]
    d.input(1, inner if d.chance(0.8) else d.broadcast(inner))
    d.optional(2, inner)
    d.set("axis", axis, always=axis != -1)
    d.set("epsilon", 0.1, always=True)
    d.outputs = d.number(1, min(3, d.schema.max_output))


@row("LpNormalization")
def _lp(d: Draw) -> None:
    shape = d.main(1, 4, 1)
    d.set("axis", d.axis(len(shape)))
    d.set("p", d.number(1, 2))


@row("MeanVarianceNormalization")
def _mean_variance(d: Draw) -> None:
    rank = len(d.main(4, 4, 2))
    d.set("axes", d.axes(rank) or [0])


@row("LRN")
def _lrn(d: Draw) -> None:
    d.main(3, 5, 1)
    d.set("size", d.pick((1, 3, 5)), always=True)
    d.set("alpha", 1e-3)
    d.set("beta", 0.75)
    d.set("bias", float(d.pick((1.0, 2.0))))
