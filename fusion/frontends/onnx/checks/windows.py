"""Windows over an image: convolutions and pools."""

from __future__ import annotations

from collections.abc import Iterator

from fusion.frontends.onnx.checks.dims import differ, shapes_differ, text
from fusion.frontends.onnx.node import Node
from fusion.frontends.onnx.types import known_dims
from fusion.frontends.onnx.windows import given_window, transposed_sizes

_POOLS = frozenset({"MaxPool", "AveragePool", "LpPool", "MaxUnpool"})
# Which inputs are the weights and the bias; the image is the first.
_CONVOLUTIONS: dict[str, tuple[int, int | None]] = {
    "Conv": (1, 2), "ConvTranspose": (1, 2), "ConvInteger": (1, None), "QLinearConv": (3, 8), "DeformConv": (1, 3)
}  # fmt: skip
# How many entries each has for a spatial axis.
_PER_AXIS = {"kernel_shape": 1, "strides": 1, "dilations": 1, "pads": 2, "output_padding": 1, "output_shape": 1}


def windows_that_do_not_fit(node: Node) -> Iterator[str]:
    """Yield where the window of a convolution or a pool contradicts the image, the weights or the bias."""
    if node.proto.domain:
        return
    if node.op in _POOLS or node.op in _CONVOLUTIONS:
        yield from _lengths(node)
    if node.op in _POOLS:
        yield from _pads(node)
    if node.op in _CONVOLUTIONS:
        yield from _channels(node, *_CONVOLUTIONS[node.op])
    if node.op == "ConvTranspose":
        yield from _transposed(node)


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


def _transposed(node: Node) -> Iterator[str]:
    """What is cut off a transposed convolution leaves something of it."""
    image, weights = (known_dims(node.scope.types.get(name)) for name in node.proto.input[:2])
    if image is None or weights is None or node.attr("output_shape"):
        return
    window = given_window(node.proto, weights[2:])
    sizes = transposed_sizes(window, image[2:], tuple(node.attr("output_padding") or [0] * len(image[2:])))
    for axis, (size, before, after) in enumerate(zip(sizes, window.before, window.after, strict=True)):
        if size <= 0 < before + after:
            whole = size + before + after
            yield f"pads of {before} and {after} leave nothing of {whole} results along axis {axis + 2}"


def _channels(node: Node, at: int, bias_at: int | None) -> Iterator[str]:
    """[N, C, ...] and [O, C / group, ...], transposed [C, O / group, ...]; the bias is [O]."""
    image, weights, group = node.dims(0), node.dims(at), int(node.attr("group", 1))
    bias = None if bias_at is None else node.dims(bias_at)
    if image is None or weights is None or len(weights) < 3:
        return
    if len(image) != len(weights):
        yield f"the input is {text(image)} and its weights are {text(weights)}"
        return
    kernel = node.attr("kernel_shape")
    if kernel and shapes_differ(kernel, weights[2:]):
        yield f"kernel_shape is {text(kernel)} and the weights are {text(weights)}"
    outer, inner = weights[0], None if weights[1] is None else weights[1] * group
    taken, made = (outer, inner) if node.op == "ConvTranspose" else (inner, outer)
    if differ(image[1], taken):
        yield f"the input {text(image)} has {image[1]} channels, its weights {text(weights)} are for {taken}"
    if outer is not None and outer % max(group, 1):
        yield f"the weights {text(weights)} are not for {group} groups"
    if bias is not None and shapes_differ(bias, [made]):
        yield f"the bias is {text(bias)} for {made} channels"


def _pads(node: Node) -> Iterator[str]:
    """A window of a pool lies at least partly in the image."""
    kernel, pads = node.attr("kernel_shape"), node.attr("pads")
    if pads and any(pad >= size for pad, size in zip(pads, kernel * 2, strict=False)):
        yield f"pads are {text(pads)}, and must be smaller than kernel_shape, which is {text(kernel)}"
