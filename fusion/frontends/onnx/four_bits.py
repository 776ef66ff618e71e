"""Which of ONNX Runtime's products with weights of few bits have kernels."""

from __future__ import annotations

from onnx import NodeProto

from fusion.frontends.onnx.node import attribute_of

PRODUCT = "MatMulNBits"
ZEROS, GROUPS, BIAS = 3, 4, 5
"""Operands that may be left out; the second says in which group a row of weights is."""
CONSTANTS = slice(1, GROUPS)
"""Those that have to be known: weights, scales, zero points."""
_BITS = 4


def sums_nothing(proto: NodeProto) -> bool:
    """Return whether a `MatMulNBits` has rows of no numbers, for which ONNX Runtime writes no result."""
    return bool(attribute_of(proto, "K") == 0)


def why_not_of_four_bits(proto: NodeProto) -> str:
    """Return why the weights of a `MatMulNBits` are none of those that have kernels; "" where they are."""
    bits = attribute_of(proto, "bits", _BITS)
    if bits != _BITS:
        return f"weights of {bits} bits have no kernels"
    return "rows of weights in groups have no kernels" if any(proto.input[GROUPS : GROUPS + 1]) else ""
