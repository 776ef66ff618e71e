"""The sliding window of a convolution or pooling: strides, dilations and pads, automatic ones resolved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusion.errors import UnsupportedOperatorError
from fusion.frontends.onnx.node import Decline, Node
from fusion.frontends.onnx.types import Shape


@dataclass(frozen=True)
class Window:
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
        UnsupportedOperatorError: It does not.
    """
    at = _WEIGHTS.get(node.op)
    if at is not None and 0 not in node.shape(0)[:2]:
        window = window_of(node, tuple(node.attr("kernel_shape") or node.shape(at)[2:]))
        padded = padded_sizes(window, node.shape(0)[2:])
        if any(size < extent for size, extent in zip(padded, window.extents, strict=True)):
            raise too_small(node, window)


def padded_sizes(window: Window, sizes: Shape) -> Shape:
    """Return `sizes` with the padding of `window`."""
    return tuple(map(sum, zip(sizes, window.before, window.after, strict=True)))


def too_small(node: Node, window: Window) -> UnsupportedOperatorError:
    """Return the error of a window that has no place in its input."""
    padded = padded_sizes(window, node.shape(0)[2:])
    return UnsupportedOperatorError(
        f"the input of {node.op} is smaller than its window",
        where=node.where,
        why=f"the window spans {_by(window.extents)}, the padded input has {_by(padded)}",
        hint="give the model a larger input",
    )


def _by(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes))


def window_of(node: Node, kernel: Shape) -> Window:
    """Return the window of `node`, whose input 0 is [N, C, ...]."""
    rank = len(kernel)
    strides = tuple(node.attr("strides") or [1] * rank)
    dilations = tuple(node.attr("dilations") or [1] * rank)
    plain = Window(kernel, strides, dilations, (0,) * rank, (0,) * rank)
    mode = node.attr("auto_pad", "NOTSET")
    if mode == "NOTSET":
        pads = tuple(node.attr("pads") or [0] * (2 * rank))
        return Window(kernel, strides, dilations, pads[:rank], pads[rank:])
    if mode == "VALID":
        return plain
    totals = [
        max((-(-size // stride) - 1) * stride + extent - size, 0)
        for size, stride, extent in zip(node.shape(0)[2:], strides, plain.extents, strict=True)
    ]
    return Window(kernel, strides, dilations, *halves(totals, mode))


def transposed_window(node: Node, kernel: Shape) -> tuple[Window, Shape]:
    """Return window and output padding of a transposed convolution; `output_shape` decides the pads where it is given.

    The size of an axis is stride * (input - 1) + output_padding + extent - before - after.
    """
    rank = len(kernel)
    strides = tuple(node.attr("strides") or [1] * rank)
    dilations = tuple(node.attr("dilations") or [1] * rank)
    extra = tuple(node.attr("output_padding") or [0] * rank)
    wanted, mode = node.attr("output_shape"), node.attr("auto_pad", "NOTSET")
    plain = Window(kernel, strides, dilations, (0,) * rank, (0,) * rank)
    if wanted is None and mode in ("NOTSET", "VALID"):
        pads = tuple(node.attr("pads") or [0] * (2 * rank)) if mode == "NOTSET" else (0,) * (2 * rank)
        return Window(kernel, strides, dilations, pads[:rank], pads[rank:]), extra
    sizes = node.shape(0)[2:]
    target = (
        list(wanted)[-rank:]
        if wanted is not None
        else [size * stride for size, stride in zip(sizes, strides, strict=True)]
    )
    totals = [
        stride * (size - 1) + more + extent - want
        for size, stride, more, extent, want in zip(sizes, strides, extra, plain.extents, target, strict=True)
    ]
    # A window too small for the wanted size is filled up behind the end.
    extra = tuple(more + max(-total, 0) for more, total in zip(extra, totals, strict=True))
    if any(more >= stride for more, stride in zip(extra, strides, strict=True)) and any(extra):
        raise Decline("the output is padded by a whole stride")
    # The standard puts the odd element in front unless it says SAME_UPPER.
    odd_in_front = "SAME_LOWER" if mode != "SAME_UPPER" else "SAME_UPPER"
    return Window(kernel, strides, dilations, *halves([max(total, 0) for total in totals], odd_in_front)), extra


def halves(totals: list[int], mode: str) -> tuple[Shape, Shape]:
    """Return what of the padding of each axis comes before the input and what behind it; `mode` says where an odd
    element goes."""
    small = tuple(total // 2 for total in totals)
    large = tuple(total - total // 2 for total in totals)
    return (small, large) if mode == "SAME_UPPER" else (large, small)
