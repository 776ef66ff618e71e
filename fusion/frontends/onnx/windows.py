"""The sliding window of a convolution or pooling: strides, dilations and pads, automatic ones resolved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from onnx import AttributeProto, NodeProto, TypeProto
from onnx.helper import make_tensor_type_proto

from fusion.declined import Declined
from fusion.errors import ShapeError
from fusion.frontends.onnx.node import Node, attribute_of
from fusion.frontends.onnx.scope import ValueScope
from fusion.frontends.onnx.types import Shape


@dataclass(frozen=True)
class OnnxWindow:
    """Per spatial axis; pads are before and after."""

    kernel: Shape
    strides: Shape
    dilations: Shape
    before: Shape
    after: Shape

    @property
    def padding(self) -> tuple[int, ...]:
        """Pads in Relax's order: all before, then all after."""
        return (*self.before, *self.after)

    @property
    def extents(self) -> tuple[int, ...]:
        """Elements that the dilated kernel spans on each axis."""
        return tuple((size - 1) * step + 1 for size, step in zip(self.kernel, self.dilations, strict=True))


_WEIGHTS = {"Conv": 1, "ConvInteger": 1, "QLinearConv": 3}
"""Which input holds them."""


def refuse_small_image(node: Node) -> None:
    """Check that the window of a convolution fits the padded input: otherwise there is no result, on any backend.

    Raises:
        ShapeError: It does not.
    """
    at = _WEIGHTS.get(node.op)
    if at is not None:
        window = window_of(node, tuple(node.attr("kernel_shape") or node.shape(at)[2:]))
        padded = padded_sizes(window, node.shape(0)[2:])
        if any(size < extent for size, extent in zip(padded, window.extents, strict=True)):
            raise too_small(node, window)


def padded_sizes(window: OnnxWindow, sizes: Shape) -> Shape:
    """Return `sizes` with the padding of `window`."""
    return tuple(map(sum, zip(sizes, window.before, window.after, strict=True)))


def too_small(node: Node, window: OnnxWindow) -> ShapeError:
    """Return the error of a window that has no place in its input."""
    padded = padded_sizes(window, node.shape(0)[2:])
    return ShapeError(
        f"the input of {node.op} is smaller than its window",
        where=node.where,
        why=f"the window spans {_by(window.extents)}, the padded input {list(node.shape(0))} has {_by(padded)}",
        hint="give the model a larger input",
    )


def _by(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes))


def given_window(proto: NodeProto, kernel: Shape) -> OnnxWindow:
    """Return the window of `proto` as its attributes have it, without the padding that `auto_pad` asks for."""
    rank = len(kernel)
    strides, dilations = (tuple(attribute_of(proto, name) or [1] * rank) for name in ("strides", "dilations"))
    explicit = _auto_pad(proto) == "NOTSET"
    pads = tuple((attribute_of(proto, "pads") if explicit else None) or [0] * (2 * rank))
    return OnnxWindow(kernel, strides, dilations, pads[:rank], pads[rank:])


def pads_itself(proto: NodeProto) -> bool:
    """Return whether `auto_pad` of `proto` asks for padding."""
    return _auto_pad(proto) not in ("NOTSET", "VALID")


def _auto_pad(proto: NodeProto) -> str:
    """Return the rule for padding; one that is empty is none, as in ONNX Runtime."""
    return str(attribute_of(proto, "auto_pad") or "NOTSET")


def same_padding(proto: NodeProto, sizes: Shape, strides: Shape, extents: Shape) -> tuple[Shape, Shape]:
    """Return what comes before and behind an input of `sizes`, so that a window has a place for each stride in it."""
    axes = zip(sizes, strides, extents, strict=True)
    totals = [max((-(-size // stride) - 1) * stride + extent - size, 0) for size, stride, extent in axes]
    return halves(totals, attribute_of(proto, "auto_pad"))


def window_of(node: Node, kernel: Shape) -> OnnxWindow:
    """Return the window of a convolution, whose input 0 is [N, C, ...]."""
    window = given_window(node.proto, kernel)
    if not pads_itself(node.proto):
        return window
    before, after = same_padding(node.proto, node.shape(0)[2:], window.strides, window.extents)
    return replace(window, before=before, after=after)


def convolution_type(node: NodeProto, scope: ValueScope) -> dict[str, TypeProto]:
    """Return the type of what a Conv of known sizes makes, [N, O, ...]; nothing for other nodes, and where padding
    follows from sizes, or attributes, weights and image do not fit, of which onnx's inference says something: also of
    an attribute that is given and has no entries."""
    if any(attribute.type == AttributeProto.INTS and not attribute.ints for attribute in node.attribute):
        return {}
    if node.op_type != "Conv" or node.domain or len(node.input) < 2 or _auto_pad(node) != "NOTSET":
        return {}
    image, weights = scope.shape(node.input[0]), scope.shape(node.input[1])
    if image is None or weights is None or not 3 <= len(image) == len(weights):
        return {}
    window, rank = given_window(node, tuple(attribute_of(node, "kernel_shape") or weights[2:])), len(image) - 2
    each = (window.kernel, window.strides, window.dilations, window.before, window.after)
    if window.kernel != weights[2:] or {len(sizes) for sizes in each} != {rank}:
        return {}
    if min(*window.kernel, *window.strides, *window.dilations) < 1 or min(window.padding) < 0:
        return {}
    padded = padded_sizes(window, image[2:])
    room = [size - extent for size, extent in zip(padded, window.extents, strict=True)]
    if min(room) < 0:
        return {}
    places = [left // step + 1 for left, step in zip(room, window.strides, strict=True)]
    element = scope.types[node.input[0]].tensor_type.elem_type
    return {node.output[0]: make_tensor_type_proto(element, [image[0], weights[0], *places])}


def transposed_sizes(window: OnnxWindow, sizes: Shape, extra: Shape) -> Shape:
    """Return the sizes of the result of a transposed convolution; `extra` is its output padding."""
    return tuple(
        stride * (size - 1) + more + extent - before - after
        for size, stride, more, extent, before, after in zip(
            sizes, window.strides, extra, window.extents, window.before, window.after, strict=True
        )
    )


def transposed_window(node: Node, kernel: Shape) -> tuple[OnnxWindow, Shape]:
    """Return window and output padding of a transposed convolution; `output_shape` decides the pads where it is
    given."""
    rank = len(kernel)
    given = given_window(node.proto, kernel)
    extra = tuple(node.attr("output_padding") or [0] * rank)
    wanted = node.attr("output_shape")
    if wanted is None and not pads_itself(node.proto):
        return given, extra
    plain, strides = replace(given, before=(0,) * rank, after=(0,) * rank), given.strides
    sizes = node.shape(0)[2:]
    target = (
        list(wanted)[-rank:]
        if wanted is not None
        else [size * stride for size, stride in zip(sizes, strides, strict=True)]
    )
    totals = [whole - want for whole, want in zip(transposed_sizes(plain, sizes, extra), target, strict=True)]
    # A window too small for the wanted size is filled up behind the end.
    extra = tuple(more + max(-total, 0) for more, total in zip(extra, totals, strict=True))
    if any(more >= stride for more, stride in zip(extra, strides, strict=True)) and any(extra):
        raise Declined("the output is padded by a whole stride")
    # The standard puts the odd element in front unless it says SAME_UPPER.
    odd_in_front = "SAME_UPPER" if node.attr("auto_pad") == "SAME_UPPER" else "SAME_LOWER"
    before, after = halves([max(total, 0) for total in totals], odd_in_front)
    return replace(plain, before=before, after=after), extra


def halves(totals: list[int], mode: str) -> tuple[Shape, Shape]:
    """Return what of the padding of each axis comes before the input and what behind it; `mode` says where an odd
    element goes."""
    small = tuple(total // 2 for total in totals)
    large = tuple(total - total // 2 for total in totals)
    return (small, large) if mode == "SAME_UPPER" else (large, small)
