"""Integers of few bits, computed as what they are: bit by bit is how a kernel may do it, the sums are the same.

A weight of B bits stands for itself, or with `unipolar` for 2 w - (2^B - 1), so that one bit is -1 or 1.
"""

from __future__ import annotations

from tvm import relax, topi
from tvm.relax import Expr

from fusion.declined import Declined
from fusion.frontends.relay.call import Call, scalar
from fusion.frontends.relay.layouts import relayout
from fusion.frontends.relay.registry import translates
from fusion.frontends.relay.windows import padding_of, per_axis


@translates("nn.bitserial_dense")
def bitserial_dense(call: Call) -> Expr:
    """[m, k] @ [n, k]'"""
    if call.rank(1) != 2:
        raise Declined("a weight whose bits are packed already")
    a = _bits(call, call.x(0), call.integer("data_bits", 1))
    w = _weight(call, call.x(1))
    return relax.op.astype(relax.op.matmul(a, relax.op.permute_dims(w)), call.dtype_attribute("out_dtype", "int16"))


@translates("nn.bitserial_conv2d")
def bitserial_conv2d(call: Call) -> Expr:
    if call.rank(1) != 4:
        raise Declined("a weight whose bits are packed already")
    layout = call.text("data_layout", "NCHW")
    x = relayout(call, call.x(0), layout, "NCHW")
    w = relayout(call, call.x(1), call.text("kernel_layout", "OIHW"), "OIHW")
    result = relax.op.nn.conv2d(
        _bits(call, x, call.integer("activation_bits", 1)),
        _weight(call, w),
        strides=per_axis(call, "strides", 2),
        padding=padding_of(call, 2),
    )
    narrow = call.emit(relax.op.astype(result, call.dtype_attribute("out_dtype", "int16")))
    return relayout(call, narrow, "NCHW", layout)


def _bits(call: Call, x: Expr, bits: int) -> Expr:
    """Return the lowest `bits` of `x` as int32."""
    wide = call.emit(relax.op.astype(x, "int32"))
    return call.emit(relax.op.bitwise_and(wide, scalar((1 << bits) - 1, "int32")))


def _weight(call: Call, w: Expr) -> Expr:
    bits = call.integer("weight_bits", 1)
    w = _bits(call, w, bits)
    if not call.flag("unipolar", True):
        return w
    double = relax.op.multiply(w, scalar(2, "int32"))
    return call.emit(relax.op.subtract(double, scalar((1 << bits) - 1, "int32")))


@translates("nn.bitpack")
def bitpack(call: Call) -> Expr:
    """Gather bit b of the neighbours along `pack_axis` into words of `pack_type`, for each b along `bit_axis`."""
    axis, word = call.axis("pack_axis", 1), call.dtype_attribute("pack_type", "uint32")
    if word not in ("uint8", "uint16", "uint32", "uint64") or call.shape(0)[axis] % int(word[4:]):
        raise Declined(f"{call.shape(0)[axis]} elements in words of {word}")
    place = call.axis("bit_axis", -1, call.rank(0) + 1)
    return call.builder.call_te(topi.nn.bitpack, call.x(0), call.integer("bits", 1), axis, place, word)
