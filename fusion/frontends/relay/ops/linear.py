"""Matrix products."""

from __future__ import annotations

from tvm import relax
from tvm.relax import Expr

from fusion.declined import Declined
from fusion.frontends.relay.call import Call, dtype_of, shape_of
from fusion.frontends.relay.layouts import relayout
from fusion.frontends.relay.registry import translates


@translates("nn.dense")
def dense(call: Call) -> Expr:
    """[..., k] @ [n, k]' -> [..., n]"""
    return times_transposed(call, call.x(0), call.x(1))


@translates("nn.contrib_dense_pack")
def dense_pack(call: Call) -> Expr:
    """[m, k] @ [n, k]', the second packed as `weight_layout` says, such as NC8n."""
    layout = call.text("weight_layout", "NC")
    return times_transposed(call, call.x(0), relayout(call, call.x(1), layout, "NC"))


def times_transposed(call: Call, a: Expr, b: Expr) -> Expr:
    """Return a @ b', of the dtype that the attributes of `call` ask for."""
    return product(call, a, relax.op.permute_dims(b, [1, 0]))


@translates("nn.matmul")
def matmul(call: Call) -> Expr:
    return _matmul(call)


@translates("nn.batch_matmul")
def batch_matmul(call: Call) -> Expr:
    """[b, m, k] @ [b, n, k]'; the attribute that transposes the second operand is on by its builder's default, which
    the text therefore says, and off by the attribute's own. TVM 0.7 has no such attributes and always transposes: so
    does this where nothing else fits."""
    for index in (0, 1):
        if call.rank(index) != 3:
            raise Declined(f"operand {index} has {call.rank(index)} axes, not 3")
    (_, _, inner), (_, rows, columns) = call.shape(0), call.shape(1)
    if not call.attributes and inner == columns != rows:
        return product(call, call.x(0), _transposed(call.x(1)))
    return _matmul(call)


def _matmul(call: Call) -> Expr:
    a = _transposed(call.x(0)) if call.flag("transpose_a", False) else call.x(0)
    b = _transposed(call.x(1)) if call.flag("transpose_b", False) else call.x(1)
    return product(call, a, b)


def _transposed(x: Expr) -> Expr:
    rank = len(shape_of(x))
    return relax.op.permute_dims(x, [*range(rank - 2), rank - 1, rank - 2])


def product(call: Call, a: Expr, b: Expr) -> Expr:
    """Return a @ b in the dtype that the attributes of `call` ask for; sums of half precision are made in float32."""
    a, b = call.emit(a), call.emit(b)
    if shape_of(a)[-1] != shape_of(b)[-2]:
        raise Declined(f"rows of {shape_of(a)[-1]} and columns of {shape_of(b)[-2]} elements have no product")
    wanted = call.dtype_attribute("out_dtype", dtype_of(a))
    wide = "float32" if dtype_of(a) in ("float16", "bfloat16") else wanted
    if dtype_of(a) == "float16":
        result = relax.op.matmul(a, b, out_dtype=wide)
    else:
        result = relax.op.matmul(*(x if dtype_of(x) == wide else relax.op.astype(x, wide) for x in (a, b)))
    return result if wide == wanted else relax.op.astype(result, wanted)
