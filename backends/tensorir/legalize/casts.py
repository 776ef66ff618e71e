"""Integers as bools: whether they are other than 0. TVM's own cast raises where one turns out to be a constant that is
neither 0 nor 1, such as the greatest of no numbers.

Scales of eight bits as float32, of which TVM takes the least for 0 and NaN for infinity."""

from __future__ import annotations

import tvm
from tvm import relax, te, tirx

from backends.tensorir.legalize.common import Expr, FLegalize


def _is_not_zero(x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda *i: tirx.NE(x(*i), tirx.const(0, x.dtype)), "compute")


_SCALE = "float8_e8m0fnu"


def _wide_scale(x: te.Tensor) -> te.Tensor:
    """The byte is the exponent of float32, whose least needs a bit of the mantissa."""

    def element(*index: Expr) -> Expr:
        byte = tirx.reinterpret("uint8", x(*index)).astype("uint32")
        usual = tirx.shift_left(byte, tirx.const(23, "uint32"))
        least, nan = tirx.const(1 << 22, "uint32"), tirx.const(0x7FC00000, "uint32")
        bits = tirx.Select(byte == 0, least, tirx.Select(byte == 255, nan, usual))
        return tirx.reinterpret("float32", bits)

    return te.compute(x.shape, element, "compute")


def _legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    (x,) = call.args
    if str(call.ty.dtype) == "bool" and "int" in str(x.ty.dtype):
        return builder.call_te(_is_not_zero, x, primfunc_name_hint="cast")
    if str(call.ty.dtype) == "float32" and str(x.ty.dtype) == _SCALE:
        return builder.call_te(_wide_scale, x, primfunc_name_hint="cast")
    return tvm.ir.Op.get("relax.astype").get_attr("FLegalize")(builder, call)


CASTS: dict[str, FLegalize] = {"relax.astype": _legalize}
