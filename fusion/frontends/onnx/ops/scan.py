"""Operators that run along an axis, and reinterpretation of bits."""

from __future__ import annotations

import tvm
from tvm import relax, te
from tvm.relax import Expr

from fusion.declined import Declined
from fusion.frontends.onnx.node import Node
from fusion.frontends.onnx.registry import converts


@converts("CumSum", "CumProd")
def cumulate(node: Node) -> Expr:
    rank = len(node.shape(0))
    axis = 0 if rank == 1 else int(node.needed_const(1).reshape(-1)[0]) % rank
    function = relax.op.cumsum if node.op == "CumSum" else relax.op.cumprod
    backward = bool(node.attr("reverse", 0))
    x = node.emit(relax.op.flip(node.x(0), axis)) if backward else node.x(0)
    result = function(x, axis, node.dtype(0), bool(node.attr("exclusive", 0)))
    return relax.op.flip(node.emit(result), axis) if backward else result


@converts("BitCast")
def bit_cast(node: Node) -> Expr:
    """The same bits as another dtype of the same width."""
    target = node.out_dtype()
    if "bool" in (target, node.dtype(0)):
        raise Declined("the bits of bool")

    def reinterpret(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *index: tvm.tirx.reinterpret(target, x(*index)), name="bit_cast")

    return node.builder.call_te(reinterpret, node.x(0))
