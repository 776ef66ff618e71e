"""Sorts and searches."""

from __future__ import annotations

from tvm import relax, te, topi
from tvm.relax import Expr

from fusion.declined import Declined
from fusion.frontends.relay.call import Call
from fusion.frontends.relay.registry import translates


@translates("sort")
def sort(call: Call) -> Expr:
    return relax.op.sort(call.x(0), call.axis("axis", -1), not call.flag("is_ascend", True))


@translates("argsort")
def argsort(call: Call) -> Expr:
    """Of equal elements the first comes first, in both orders."""
    descending, dtype = not call.flag("is_ascend", True), call.dtype_attribute("dtype", "int32")
    return relax.op.argsort(call.x(0), call.axis("axis", -1), descending, dtype)


@translates("topk")
def topk(call: Call) -> Expr | list[Expr]:
    return _topk(call, call.integer("k", 1))


@translates("dyn.topk")
def dynamic_topk(call: Call) -> Expr | list[Expr]:
    return _topk(call, call.const_ints(1)[0])


def _topk(call: Call, k: int) -> Expr | list[Expr]:
    """The first `k` in order, all where `k` is less than 1: values, their indices, or both."""
    axis, kind = call.axis("axis", -1), call.text("ret_type", "both")
    size = call.shape(0)[axis]
    if kind not in ("both", "values", "indices"):
        raise Declined(f"ret_type {kind}")
    if k > size:
        raise Declined(f"the first {k} of {size}")
    largest, dtype = not call.flag("is_ascend", False), call.dtype_attribute("dtype", "int32")
    found = call.emit(relax.op.topk(call.x(0), k if k > 0 else size, axis, kind, largest, dtype))
    return [relax.TupleGetItem(found, index) for index in (0, 1)] if kind == "both" else found


@translates("searchsorted")
def searchsorted(call: Call) -> Expr:
    """Where values would have to be put into the last axis of operand 0 to keep it sorted."""
    ordered, values = call.shape(0), call.shape(1)
    if len(ordered) > 1 and ordered[:-1] != values[:-1]:
        raise Declined(f"values {values} in {ordered}")
    right, dtype = call.flag("right", False), call.dtype_attribute("dtype", "int32")

    def search(ordered: te.Tensor, values: te.Tensor) -> te.Tensor:
        return topi.searchsorted(ordered, values, right, dtype)

    return call.builder.call_te(search, call.x(0), call.x(1))
