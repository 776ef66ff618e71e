"""Refuses a node whose attributes contradict the shapes of its inputs: it has no result, on any backend.

What is not known of a shape contradicts nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fusion.errors import ShapeError
from fusion.frontends.onnx.node import Node

Dims = Sequence[int | None]

_POOLS = frozenset({"MaxPool", "AveragePool", "LpPool", "MaxUnpool"})
# Which inputs are the weights and the bias; the image is the first.
_CONVOLUTIONS: dict[str, tuple[int, int | None]] = {
    "Conv": (1, 2), "ConvTranspose": (1, 2), "ConvInteger": (1, None), "QLinearConv": (3, 8), "DeformConv": (1, 3)
}  # fmt: skip
# Which input is the right operand; the left one is the first.
_PRODUCTS = {"MatMul": 1, "MatMulInteger": 1, "QLinearMatMul": 3}
# How many entries each has for a spatial axis.
_PER_AXIS = {"kernel_shape": 1, "strides": 1, "dilations": 1, "pads": 2, "output_padding": 1, "output_shape": 1}


def check_shapes(node: Node) -> None:
    """Check what `node` says of its inputs against their shapes, as far as these are known.

    Raises:
        ShapeError: They contradict each other.
    """
    if node.proto.domain not in ("", "ai.onnx"):
        return
    for why in _contradictions(node):
        raise ShapeError(
            f"the shapes of {node.op} contradict each other",
            where=node.where,
            why=why,
            hint="correct the node where the model is made, or give the model inputs of other shapes",
        )


def _contradictions(node: Node) -> Iterator[str]:
    if node.op in _POOLS or node.op in _CONVOLUTIONS:
        yield from _lengths(node)
    if node.op in _CONVOLUTIONS:
        yield from _channels(node, *_CONVOLUTIONS[node.op])
    if node.op in _PRODUCTS:
        yield from _operands(node.dims(0), node.dims(_PRODUCTS[node.op]))
    if node.op == "Gemm":
        yield from _gemm(node)


def _lengths(node: Node) -> Iterator[str]:
    """Attributes of a window have entries for each spatial axis; none at all means the default, where there is one."""
    image = node.dims(0)
    if image is None:
        return
    axes = len(image) - 2
    for name, share in _PER_AXIS.items():
        given = node.attr(name)
        # Some exporters write batch and channels in front of the sizes wanted of a transposed convolution.
        allowed = {share * axes, len(image)} if name == "output_shape" else {share * axes}
        needed = name == "kernel_shape" and node.op in _POOLS
        if (given and len(given) not in allowed) or (needed and not given):
            yield f"{name} has {len(given or ())} entries, and {axes} spatial axes need {share * axes}"


def _channels(node: Node, at: int, bias_at: int | None) -> Iterator[str]:
    """[N, C, ...] and [O, C / group, ...], transposed [C, O / group, ...]; the bias is [O]."""
    image, weights, group = node.dims(0), node.dims(at), int(node.attr("group", 1))
    bias = None if bias_at is None else node.dims(bias_at)
    if image is None or weights is None or len(weights) < 3:
        return
    if len(image) != len(weights):
        yield f"the input is {_text(image)} and its weights are {_text(weights)}"
        return
    kernel = node.attr("kernel_shape")
    if kernel and _shapes_differ(kernel, weights[2:]):
        yield f"kernel_shape is {_text(kernel)} and the weights are {_text(weights)}"
    outer, inner = weights[0], None if weights[1] is None else weights[1] * group
    taken, made = (outer, inner) if node.op == "ConvTranspose" else (inner, outer)
    if _differ(image[1], taken):
        yield f"the input {_text(image)} has {image[1]} channels, its weights {_text(weights)} are for {taken}"
    if outer is not None and outer % max(group, 1):
        yield f"the weights {_text(weights)} are not for {group} groups"
    if bias is not None and _shapes_differ(bias, [made]):
        yield f"the bias is {_text(bias)} for {made} channels"


def _gemm(node: Node) -> Iterator[str]:
    """[M, K] @ [K, N] + [M, N], the first two perhaps transposed, the last one perhaps broadcast."""
    left, right, bias = (node.dims(index) for index in range(3))
    if left is None or right is None or not len(left) == len(right) == 2:
        return
    left = left[::-1] if node.attr("transA", 0) else left
    right = right[::-1] if node.attr("transB", 0) else right
    yield from _operands(left, right)
    result = left[0], right[1]
    if bias is None:
        return
    known = zip(bias[::-1], result[::-1], strict=False)
    if len(bias) > 2 or any(size != 1 and _differ(size, wanted) for size, wanted in known):
        yield f"what is added is {_text(bias)} and does not broadcast to {_text(result)}"


def _operands(left: Dims | None, right: Dims | None) -> Iterator[str]:
    """[..., M, K] @ [..., K, N], where [K] may stand for [1, K] and for [K, 1]."""
    if not left or not right:
        return
    inner = left[-1], right[-2:][0]
    if _differ(*inner):
        yield f"the rows of {_text(left)} have {inner[0]} elements, the columns of {_text(right)} have {inner[1]}"
    if any(1 not in pair and _differ(*pair) for pair in zip(left[-3::-1], right[-3::-1], strict=False)):
        yield f"the axes of {_text(left)} and {_text(right)} before the last two do not broadcast"


def _shapes_differ(left: Dims, right: Dims) -> bool:
    return len(left) != len(right) or any(map(_differ, left, right))


def _differ(left: int | None, right: int | None) -> bool:
    return None not in (left, right) and left != right


def _text(dims: Dims) -> str:
    return "[" + ", ".join("?" if dim is None else str(dim) for dim in dims) + "]"
