"""The window of a pool and how many places it takes, by ONNX Runtime's rules.

ONNX's inference follows other ones for windows that are larger than the input, or that start behind it.
"""

from __future__ import annotations

from dataclasses import replace

from onnx import NodeProto, TensorProto, TypeProto
from onnx.helper import make_tensor_type_proto

from fusion.errors import ShapeError
from fusion.frontends.onnx.node import Node, attribute_of
from fusion.frontends.onnx.scope import ValueScope
from fusion.frontends.onnx.types import Shape, known_dims
from fusion.frontends.onnx.windows import OnnxWindow, given_window, pads_itself, same_padding, too_small

_POOLS = frozenset({"MaxPool", "AveragePool", "LpPool"})
_GLOBAL = frozenset({"GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"})


def pool_window(node: NodeProto, sizes: Shape) -> tuple[OnnxWindow, Shape]:
    """Return the window of a pool over spatial axes of `sizes`, and how many places it takes on each.

    There may be less than one. A window that does not fit, and overhangs by less than its stride, takes one.
    """
    window = given_window(node, tuple(int(size) for size in attribute_of(node, "kernel_shape")))
    if pads_itself(node):
        # Without regard to dilations.
        before, after = same_padding(node, sizes, window.strides, window.kernel)
        window = replace(window, before=before, after=after)
    ceil = bool(attribute_of(node, "ceil_mode", 0))
    axes = zip(sizes, window.before, window.after, window.extents, window.strides, strict=True)
    return window, tuple(
        _places(size, front, back=back, extent=extent, step=step, ceil=ceil) for size, front, back, extent, step in axes
    )


def _places(size: int, front: int, back: int, extent: int, step: int, ceil: bool) -> int:
    room = size + front + back - extent
    if not ceil:
        return (abs(room) // step) * (1 if room > 0 else -1) + 1
    places = -(-room // step) + 1
    # The last one starts within the input or the padding in front of it.
    return places - 1 if (places - 1) * step >= size + front else places


def refuse_pool_without_places(node: Node) -> None:
    """Check that a pool has elements to look at, and its window places, or none at all: ONNX Runtime has no result with
    less.

    Raises:
        ShapeError: There are no elements, or less than no places on some axis.
    """
    if node.op in _POOLS | _GLOBAL and 0 in node.shape(0)[1:] and node.shape(0)[0]:
        raise ShapeError(
            f"the input of {node.op} has no elements",
            where=node.where,
            why=f"its shape is {list(node.shape(0))}",
            hint="give the model a larger input",
        )
    if node.op in _POOLS and node.shape(0)[0]:
        window, places = pool_window(node.proto, node.shape(0)[2:])
        if min(places) < 0:
            raise too_small(node, window)


def pool_types(node: NodeProto, scope: ValueScope) -> dict[str, TypeProto]:
    """Return the types of what a pool of known sizes returns; nothing for other nodes."""
    shape = known_dims(scope.types.get(node.input[0])) if node.op_type in _POOLS and not node.domain else None
    kernel = attribute_of(node, "kernel_shape")
    if shape is None or not kernel or len(kernel) != len(shape) - 2 or 0 in shape:
        return {}
    places = pool_window(node, shape[2:])[1]
    if min(places) < 0:
        return {}
    element = scope.types[node.input[0]].tensor_type.elem_type
    kinds = [make_tensor_type_proto(kind, [*shape[:2], *places]) for kind in (element, TensorProto.INT64)]
    return dict(zip(node.output, kinds, strict=False))
