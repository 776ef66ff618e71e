"""Changes of dtype."""

from __future__ import annotations

from tvm import relax
from tvm.relax import Expr

from fusion.frontends.onnx.node import Node
from fusion.frontends.onnx.registry import converts


@converts("Cast", "CastLike")
def cast(node: Node) -> Expr:
    return cast_to(node, node.x(0), node.dtype(0), node.out_dtype())


def cast_to(node: Node, x: Expr, source: str, target: str) -> Expr:
    """Return `x`, of dtype `source`, as `target`: numbers become bool by comparison with zero, which scales of eight
    bits have none of."""
    if source == target:
        return x
    if source.startswith("float8") and target != "float32":
        return cast_to(node, node.emit(relax.op.astype(x, "float32")), "float32", target)
    if target == "bool":
        return relax.op.not_equal(x, relax.const(0, source))
    if (source.startswith("float") and target == "bfloat16") or (source == "bfloat16" and target != "float32"):
        return relax.op.astype(relax.op.astype(x, "float32"), target)
    return relax.op.astype(x, target)


@converts("Identity")
def identity(node: Node) -> Expr:
    return node.x(0)
