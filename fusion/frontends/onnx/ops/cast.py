"""Changes of dtype."""

from __future__ import annotations

from tvm import relax
from tvm.relax import Expr

from fusion.frontends.onnx.node import Decline, Node
from fusion.frontends.onnx.registry import converts


@converts("Cast", "CastLike")
def cast(node: Node) -> Expr:
    return cast_to(node, node.x(0), node.dtype(0), node.out_dtype())


def cast_to(node: Node, x: Expr, source: str, target: str) -> Expr:
    """Return `x`, of dtype `source`, as `target`: numbers become bool by comparison with zero."""
    if source == target:
        return x
    if target == "bool":
        return relax.op.not_equal(x, relax.const(0, source))
    if (source.startswith("float") and target == "bfloat16") or (source == "bfloat16" and target != "float32"):
        return relax.op.astype(relax.op.astype(x, "float32"), target)
    return relax.op.astype(x, target)


@converts("Identity")
def identity(node: Node) -> Expr:
    return node.x(0)


@converts("Dropout")
def dropout(node: Node) -> list[Expr]:
    """In inference the input itself, and a mask that is all true (before opset 10, all ones)."""
    training = node.const(2)
    if training is not None and bool(training.reshape(-1)[0]):
        ratio = node.const(1)
        if ratio is None or float(ratio.reshape(-1)[0]) != 0.0:
            raise Decline("training mode draws random numbers")
    mask = [relax.op.ones(node.shape(0), node.out_dtype(1))] if node.wants(1) else []
    return [node.x(0), *mask]
