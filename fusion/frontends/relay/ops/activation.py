"""Activation functions, and what networks do to activations one channel at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tvm import relax
from tvm.relax import Expr

from fusion.declined import Declined
from fusion.frontends.relay.call import Call, shape_of
from fusion.frontends.relay.registry import translates


@translates("nn.relu")
def relu(call: Call) -> Expr:
    if call.dtype(0).startswith("float"):
        return relax.op.nn.relu(call.x(0))
    return relax.op.maximum(call.x(0), call.like(0))


@translates("nn.leaky_relu")
def leaky_relu(call: Call) -> Expr:
    return relax.op.nn.leakyrelu(call.x(0), call.number("alpha", 0.25))


@translates("nn.prelu")
def prelu(call: Call) -> Expr:
    """x where it is positive, elsewhere times a number for each element of an axis."""
    x, slope = call.x(0), along(call.x(1), call.rank(0), call.axis("axis", 1))
    return relax.op.where(relax.op.greater(x, call.like(0)), x, relax.op.multiply(x, slope))


@translates("nn.bias_add")
def bias_add(call: Call) -> Expr:
    return relax.op.add(call.x(0), along(call.x(1), call.rank(0), call.axis("axis", 1)))


def along(vector: Expr, rank: int, axis: int) -> Expr:
    """Return `vector` so that it runs along `axis` of a tensor of `rank` axes; what has one element fits any axis."""
    if len(shape_of(vector)) > 1:
        raise Declined(f"a tensor of shape {shape_of(vector)} is no vector")
    if not shape_of(vector) or axis == rank - 1:
        return vector
    return relax.op.reshape(vector, [shape_of(vector)[0] if index == axis else 1 for index in range(rank)])


@translates("nn.dropout")
def dropout(call: Call) -> Sequence[Expr]:
    """x -> x and a mask of ones, as nothing is dropped in inference."""
    return [call.x(0), relax.op.ones(call.shape(0), call.dtype(0))]


@translates("nn.batch_flatten")
def batch_flatten(call: Call) -> Expr:
    """[n, ...] -> [n, product of the rest]"""
    shape = call.shape(0)
    if not shape:
        raise Declined("a scalar has no batch")
    return relax.op.reshape(call.x(0), (shape[0], math.prod(shape[1:])))
