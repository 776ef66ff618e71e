"""What training minimises."""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax
from tvm.relax import Expr

from fusion.declined import Declined
from fusion.frontends.relay.call import Call, scalar
from fusion.frontends.relay.registry import translates


@translates("nn.cross_entropy", "nn.cross_entropy_with_logits")
def cross_entropy(call: Call) -> Expr:
    """Predictions and targets [n, c] -> -sum(log(p) t) / n; logits are logarithms already."""
    p = call.x(0) if call.operator.endswith("with_logits") else relax.op.log(call.x(0))
    total = relax.op.sum(relax.op.multiply(p, call.x(1)))
    return relax.op.divide(relax.op.negative(total), call.like(call.shape(0)[0]))


@translates("nn.nll_loss")
def nll_loss(call: Call) -> Expr:
    """Predictions [n, c, ...], classes [n, ...], weights [c]; what has the class `ignore_index` counts nothing."""
    predictions, targets, weights = call.x(0), call.x(1), call.x(2)
    reduction = call.text("reduction", "mean")
    if reduction not in _REDUCTIONS:
        raise Declined(f"there is no reduction {reduction!r}")
    axis = 0 if call.rank(0) == 1 else 1
    counted = call.emit(relax.op.not_equal(targets, scalar(call.integer("ignore_index", -100), call.dtype(1))))
    classes = call.emit(relax.op.where(counted, targets, scalar(0, call.dtype(1))))
    chosen = relax.op.gather_elements(predictions, relax.op.expand_dims(classes, axis), axis)
    weight = relax.op.take(weights, classes, 0)
    weight = call.emit(relax.op.where(counted, weight, call.like(0.0)))
    loss = relax.op.negative(relax.op.multiply(relax.op.squeeze(chosen, axis), weight))
    return _REDUCTIONS[reduction](call.emit(loss), weight)


_REDUCTIONS: dict[str, Callable[[Expr, Expr], Expr]] = {
    "none": lambda loss, weight: loss,
    "sum": lambda loss, weight: relax.op.sum(loss),
    "mean": lambda loss, weight: relax.op.divide(relax.op.sum(loss), relax.op.sum(weight)),
}
