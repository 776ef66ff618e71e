"""Convolutions and matrix products with what comes before and after them."""

from __future__ import annotations

from fusion.frontends.onnx.fused.activations import activate
from fusion.frontends.onnx.fused.body import Body, expands

_WINDOW = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")


@expands("FusedConv")
def fused_conv(body: Body) -> str:
    """activation(conv(x, w, b) + z); b and z may be missing"""
    window = {name: body.node.attr(name) for name in _WINDOW if body.node.attr(name) is not None}
    y = body.op("Conv", body.x(0), body.x(1), *([body.x(2)] if body.x(2) else []), **window)
    total = body.op("Add", y, body.x(3)) if body.x(3) else y
    return activate(body, total, body.node.attr("activation_params") or [])


@expands("FusedGemm")
def fused_gemm(body: Body) -> str:
    """activation(alpha * a @ b + beta * c), a and b perhaps transposed"""
    given = {name: body.node.attr(name) for name in ("alpha", "beta", "transA", "transB")}
    y = body.op("Gemm", *(body.x(index) for index in range(3) if body.x(index)),
                **{name: value for name, value in given.items() if value is not None})  # fmt: skip
    parameters = (body.node.attr(f"activation_{name}") for name in ("alpha", "beta", "gamma"))
    return activate(body, y, [value for value in parameters if value is not None])


@expands("FusedMatMul", "TransposeMatMul")
def fused_matmul(body: Body) -> str:
    """alpha * a @ b, the last two axes of either perhaps swapped, and before that the first perhaps put behind the
    batch"""
    left, right = (_operand(body, index, side) for index, side in enumerate("AB"))
    y, alpha = body.op("MatMul", left, right), body.node.attr("alpha", 1.0)
    return y if alpha == 1 else body.op("Mul", y, body.like(alpha))


def _operand(body: Body, index: int, side: str) -> str:
    rank = len(body.node.shape(index))
    order = list(range(rank))
    if rank < 2:
        return body.x(index)
    if body.node.attr(f"transBatch{side}", 0):
        order = [*order[1:-1], order[0], order[-1]]
    if body.node.attr(f"trans{side}", 0):
        order[-2:] = reversed(order[-2:])
    return body.x(index) if order == sorted(order) else body.op("Transpose", body.x(index), perm=order)
