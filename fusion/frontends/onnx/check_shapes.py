"""Refuses a node whose attributes contradict the shapes of its inputs: it has no result, on any backend.

What is not known of a shape contradicts nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from fusion.errors import ShapeError
from fusion.frontends.onnx.node import Node

_POOLS = frozenset({"MaxPool", "AveragePool", "LpPool", "MaxUnpool"})
_CONVOLUTIONS = frozenset({"Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "DeformConv"})
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
            hint="correct the node where the model is made, and export the model again",
        )


def _contradictions(node: Node) -> Iterator[str]:
    if node.op in _POOLS | _CONVOLUTIONS:
        yield from _lengths(node)


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
