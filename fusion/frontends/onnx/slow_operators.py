"""The operators for which ONNX Runtime has kernels that ours do not come near, as data."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import NodeProto, TensorProto, TypeProto

from fusion.frontends.onnx.convert import has_converter
from fusion.frontends.onnx.four_bits import CONSTANTS, PRODUCT, sums_nothing, why_not_of_four_bits
from fusion.frontends.onnx.fused import has_rule
from fusion.frontends.onnx.types import dtype_name, known_dims

_HALF, _DOUBLE = TensorProto.FLOAT16, TensorProto.DOUBLE
_BYTE, _LONG = TensorProto.UINT8, TensorProto.INT64
Types = Mapping[str, TypeProto]


@dataclass(frozen=True)
class Slow:
    """What a node costs here.

    Attributes:
        factor: Time of ours over that of ONNX Runtime's.
        ns: Time of ours for each multiplication, or for each element of the result where there are none.
    """

    factor: float
    ns: float


# By operator and the dtype of its first operand: whatever is slower than 1.2 times. One thread of Zen 5 with AVX-512;
# 64 channels of 28x28, 128x256x256, rows of 1024. MaxPool (1.5) stays: for NaN it has results of its own.
SLOW = {
    ("TopK", _LONG): Slow(16, 7.6),
    ("MatMul", _DOUBLE): Slow(10, 0.2),
    ("Gemm", _DOUBLE): Slow(4.6, 0.09),
    ("Tanh", _DOUBLE): Slow(7, 18.0),
    ("Exp", _DOUBLE): Slow(1.3, 10.0),
    ("Sin", _DOUBLE): Slow(2.2, 9.0),
    ("Cos", _DOUBLE): Slow(1.8, 9.0),
    ("Mish", _DOUBLE): Slow(2.2, 100.0),
    ("MatMulInteger", _BYTE): Slow(30, 0.08),
    ("ConvInteger", _BYTE): Slow(12, 0.09),
    ("QLinearConv", _BYTE): Slow(12, 0.08),
    ("QLinearMatMul", _BYTE): Slow(14, 0.09),
}  # fmt: skip
# Between DequantizeLinear and QuantizeLinear, which ONNX Runtime makes one operator on bytes. Whole networks, when each
# rounding was a loop over lanes. (A ConvTranspose, which it computes in float32 as well, is faster here.)
QUANTIZED = {
    "Conv": Slow(7, 0.06),
    "MatMul": Slow(2, 0.02),
    "Gemm": Slow(2, 0.02),
}  # fmt: skip
_MATRICES = {"MatMulInteger": 1, "QLinearMatMul": 3}
_WEIGHTS = {"ConvInteger": 1, "QLinearConv": 3}
"""Which operand of a product of integers is the right one."""
_PRODUCTS = frozenset({"MatMul", "Gemm", "Conv"})
"""What is one of bytes, or of float32, between DequantizeLinear and QuantizeLinear."""
# What ONNX Runtime makes part of an operator on bytes before it.
TAIL = frozenset({"Cast", "Mul", "Add", "QuantizeLinear", "DequantizeLinear", "Relu", "Clip"})
# What has good kernels here in float32: too much to be taken along to ONNX Runtime.
HEAVY = frozenset(
    {"Conv", "ConvTranspose", "MatMul", "Gemm", "LSTM", "GRU", "RNN", "Einsum", "Attention", "If", "Loop", "Scan",
     "MatMulNBits"}
)  # fmt: skip
OURS_ALONE = frozenset({("", "LSTM"), ("", "GRU"), ("", "RNN"), ("com.microsoft", "MatMulNBits")})
"""Domains and names of what becomes a kernel of ours at once, and no operator of Relax that a library could take."""
_MOST_PRODUCTS = (1 << 24) // 255**2
"""Of bytes without their zero points, whose sums float32 holds."""
_FAST = ("uint8", "int8")
"""As fast as ONNX Runtime's products of bytes. Those of int16, which have no instruction of their own for bytes, are
exact, where ONNX Runtime takes VPMADDUBSW, whose sums saturate. On two vCPUs of Zen 3 convolutions took 2.2 to 4 times
as long (one thread), small BERTs quantised dynamically 1.01 and 0.93, by matrices of int8 and uint8, a TFT 0.73 (two
threads, each engine in a process of its own)."""
_QUANTIZERS = frozenset({"QuantizeLinear", "DynamicQuantizeLinear"})


def may_be_slow(nodes: Iterable[NodeProto], dtypes: set[int]) -> bool:
    """Return whether a graph of `nodes` and these dtypes of weights, inputs and casts may hold a slow one."""
    telling = {op for op, dtype in SLOW if dtype not in (_HALF, _DOUBLE)} | _QUANTIZERS | {PRODUCT}
    return bool(dtypes & {_HALF, _DOUBLE}) or any(node.op_type in telling or is_foreign(node) for node in nodes)


def is_foreign(node: NodeProto) -> bool:
    """Return whether ONNX Runtime alone knows the operator: then its neighbours had better be with it."""
    known = not node.domain or onnx.defs.has(node.op_type, node.domain)
    return not (known or has_converter(node.domain, node.op_type) or has_rule(node.domain, node.op_type))


def why_not_narrow(node: NodeProto, fixed: Container[str], byte_products: Container[tuple[str, str]]) -> str:
    """Return why a product with weights of few bits has no kernel on a target with these products of bytes; "" where it
    has one, and for other operators."""
    if node.op_type != PRODUCT or sums_nothing(node):
        return ""
    if why := why_not_of_four_bits(node):
        return why
    if not all(not name or name in fixed for name in node.input[CONSTANTS]):
        return "only the run knows the weights"
    return "" if byte_products else "the target multiplies no bytes"


def slow(node: NodeProto, types: Types, dequantized: bool) -> Slow | None:
    """Return what `node` costs here if it is slow; `dequantized` says whether its first operand is one."""
    kind = types.get(node.input[0]) if node.input and not node.domain else None
    if kind is None:
        return None
    if dequantized and node.op_type in QUANTIZED:
        return QUANTIZED[node.op_type]
    return SLOW.get((node.op_type, kind.tensor_type.elem_type))


def multiplied_as_bytes(
    node: NodeProto, types: Types, fixed: Container[str], dequantized: bool, byte_products: Container[tuple[str, str]]
) -> bool:  # fmt: skip
    """Return whether a slow `node` is none on a target that has kernels for these products of bytes, by weights that
    are among the `fixed` values; other products of `dequantized` values are made of float32.
    """
    is_fast = _FAST in byte_products
    if node.domain:
        return False
    if node.op_type in _PRODUCTS:
        return dequantized and (is_fast or node.op_type != "Conv")
    place = (_MATRICES | _WEIGHTS).get(node.op_type)
    if place is None or node.input[place] not in fixed:
        return False
    extents = known_dims(types.get(node.input[place])) or ()
    if node.op_type in _MATRICES:
        return len(extents) == 2
    groups = next((int(attribute.i) for attribute in node.attribute if attribute.name == "group"), 1)
    return is_fast and len(extents) == 4 and (groups == 1 or has_exact_sums(extents))


def has_exact_sums(weight: Sequence[int]) -> bool:
    """Return whether float32 holds all sums that a convolution of bytes with such weights makes."""
    return math.prod(weight[1:]) <= _MOST_PRODUCTS


def reason(node: NodeProto, cost: Slow, types: Types, dequantized: bool) -> str:
    """Return why ONNX Runtime runs `node`."""
    dtype = "8-bit" if dequantized else dtype_name(types[node.input[0]].tensor_type.elem_type)
    return f"{dtype} {node.op_type}: ONNX Runtime's kernels are {cost.factor:g} times as fast as ours"


def work(node: NodeProto, types: Types) -> float:
    """Return the multiplications of `node`, or the elements of its result; 0 where a shape is not known."""
    try:
        shapes = [_shape(types, name) for name in node.input]
        result = math.prod(_shape(types, node.output[0]))
        if node.op_type in ("Conv", "ConvInteger"):
            return result * math.prod(shapes[1][1:])
        if node.op_type == "QLinearConv":
            return result * math.prod(shapes[3][1:])
        if node.op_type == "ConvTranspose":
            return math.prod(shapes[0]) * math.prod(shapes[1][1:])
        if node.op_type in ("MatMul", "MatMulInteger", "QLinearMatMul", PRODUCT):
            return result * shapes[0][-1]
        if node.op_type == "Gemm":
            return result * math.prod(shapes[0]) / max(1, _shape(types, node.output[0])[0])
        if node.op_type == "TopK":
            return math.prod(shapes[0])
        if node.op_type in ("LSTM", "GRU", "RNN"):
            return math.prod(shapes[0][:2]) * (math.prod(shapes[1]) + math.prod(shapes[2]))
        return float(result)
    except (LookupError, TypeError):
        return 0.0


def _shape(types: Types, name: str) -> tuple[int, ...]:
    if not name:
        return ()
    shape = known_dims(types[name])
    if shape is None:
        raise LookupError(name)
    return shape
