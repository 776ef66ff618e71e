"""Operands that say how another one is treated: scales, zero points, weights of layers, boxes, positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod

from fusion.frontends.onnx.checks.dims import Dims, differ, shapes_differ, text
from fusion.frontends.onnx.node import Node

# Gates of a recurrent layer, and how many functions each direction of it has.
_GATES = {"RNN": (1, 1), "GRU": (3, 2), "LSTM": (4, 3)}


def parameters_that_do_not_fit(node: Node) -> Iterator[str]:
    """Yield where a parameter contradicts what it is a parameter of."""
    if not node.proto.domain and node.op in _RULES:
        yield from _RULES[node.op](node)


def _is_one(dims: Dims | None) -> bool:
    """Return whether a tensor may be a scalar or the only element of a row."""
    return dims is None or (len(dims) < 2 and all(size in (None, 1) for size in dims))


def _scalars(*indices: int) -> Callable[[Node], Iterator[str]]:
    def check(node: Node) -> Iterator[str]:
        for index in indices:
            dims = node.dims(index)
            if dims is not None and not _is_one(dims):
                yield f"input {index} is {text(dims)}, and must be one number"

    return check


def _columns(node: Node, matrix: int, *indices: int) -> Iterator[str]:
    """One number for the matrix, or one for each of its columns."""
    columns = node.dims(matrix)
    for index in indices:
        dims = node.dims(index)
        if dims is None or not columns or _is_one(dims) or not shapes_differ(dims, columns[-1:]):
            continue
        if shapes_differ(dims, (*columns[:-2], 1, columns[-1])[-len(columns) :]):
            yield f"input {index} is {text(dims)} for the columns of {text(columns)}"


def _conv_integer(node: Node) -> Iterator[str]:
    """One zero point for the weights, or one for each channel that they make."""
    yield from _scalars(2)(node)
    yield from _channel_parameters(node, 1, 3)


def _channel_parameters(node: Node, at: int, *indices: int) -> Iterator[str]:
    weights = node.dims(at)
    for index in indices:
        dims = node.dims(index)
        if dims is not None and weights and not _is_one(dims) and shapes_differ(dims, weights[:1]):
            yield f"input {index} is {text(dims)} for weights {text(weights)}"


def _matmul_integer(node: Node) -> Iterator[str]:
    yield from _scalars(2)(node)
    yield from _columns(node, 1, 3)


def _qlinear_matmul(node: Node) -> Iterator[str]:
    yield from _scalars(1, 2, 6, 7)(node)
    yield from _columns(node, 3, 4, 5)


def _qlinear_conv(node: Node) -> Iterator[str]:
    """One number for the weights, or one for each channel that they make."""
    yield from _scalars(1, 2, 6, 7)(node)
    yield from _channel_parameters(node, 3, 4, 5)


def _quantize(node: Node) -> Iterator[str]:
    """One scale for all, or one for each entry of an axis; blocks of their own are left to inference."""
    x, scale, zero = (node.dims(index) for index in range(3))
    if x is None or scale is None or node.attr("block_size", 0):
        return
    axis = int(node.attr("axis", 1))
    if zero is not None and _is_one(scale) != _is_one(zero) and None not in (*scale, *zero):
        yield f"the scale is {text(scale)} and the zero point {text(zero)}"
    if _is_one(scale):
        return
    if not -len(x) <= axis < len(x):
        yield f"axis is {axis}, and must be from {-len(x)} to {len(x) - 1} for a tensor of rank {len(x)}"
        return
    for name, dims in (("scale", scale), ("zero point", zero)):
        if dims is not None and shapes_differ(dims, [x[axis]]):
            yield f"the {name} is {text(dims)} for axis {axis} of {text(x)}"


def _broadcast_into(*indices: int) -> Callable[[Node], Iterator[str]]:
    """Inputs that broadcast to the first without making it larger."""

    def check(node: Node) -> Iterator[str]:
        x = node.dims(0)
        for index in indices:
            dims = node.dims(index)
            if x is None or dims is None:
                continue
            pairs = zip(dims[::-1], x[::-1], strict=False)
            if len(dims) > len(x) or any(size != 1 and differ(size, wanted) for size, wanted in pairs):
                yield f"input {index} is {text(dims)} and does not broadcast to {text(x)}"

    return check


def _per_channel(*indices: int) -> Callable[[Node], Iterator[str]]:
    def check(node: Node) -> Iterator[str]:
        x = node.dims(0)
        for index in indices:
            dims = node.dims(index)
            if x is not None and dims is not None and (len(x) < 2 or shapes_differ(dims, [x[1]])):
                yield f"input {index} is {text(dims)} for the channels of {text(x)}"

    return check


def _instance_norm(node: Node) -> Iterator[str]:
    x = node.dims(0)
    if x is not None and len(x) < 3:
        yield f"the input is {text(x)}, and must have 3 axes or more"
    yield from _per_channel(1, 2)(node)


def _batch_norm(node: Node) -> Iterator[str]:
    """Statistics of sets 7 and 8 are of each element, not of each channel, where `spatial` is not 1."""
    x = node.dims(0)
    if x is None or not 7 <= node.opset < 9 or node.attr("spatial", 1) == 1:
        return
    for index in range(1, 5):
        dims = node.dims(index)
        if dims is not None and shapes_differ(dims, x[1:]):
            yield f"input {index} is {text(dims)} for the elements of {text(x)}"


def _recurrent(node: Node) -> Iterator[str]:
    """W[D, G H, I], R[D, G H, H], B[D, 2 G H] of D directions, G gates and H hidden values."""
    gates, functions = _GATES[node.op]
    hidden, layout = node.attr("hidden_size"), node.attr("layout", 0)
    directions = 2 if node.attr("direction", "forward") == "bidirectional" else 1
    x, activations = node.dims(0), node.attr("activations")
    if (activations or (activations is not None and node.op == "RNN")) and len(activations) != functions * directions:
        yield f"activations has {len(activations)} entries, and {directions} directions need {functions * directions}"
    if x is not None and len(x) != 3:
        yield f"the input is {text(x)}, and must have 3 axes"
        return
    if x is not None and ((node.op == "GRU" and 0 in x) or (node.op == "LSTM" and x[1 - layout] == 0)):
        yield f"the input {text(x)} has no elements, for which ONNX Runtime ends the process"
    if hidden is None:
        yield "hidden_size is missing"
        return
    batch = None if x is None else x[1 - layout]
    state = (batch, directions, hidden) if layout else (directions, batch, hidden)
    wanted: dict[int, tuple[int | None, ...]] = {
        1: (directions, gates * hidden, None if x is None else x[2]),
        2: (directions, gates * hidden, hidden),
        3: (directions, 2 * gates * hidden),
        4: (batch,),
        5: state,
        6: state,
        7: (directions, 3 * hidden),
    }
    for index, dims in wanted.items():
        given = node.dims(index)
        if given is not None and shapes_differ(given, dims):
            yield f"input {index} is {text(given)}, and must be {text(dims)}"


def _scan(node: Node) -> Iterator[str]:
    """Of what is read along another axis than the first, ONNX Runtime divides by the elements from that axis on."""
    count = len(node.proto.input)
    read = range(count - node.attr("num_scan_inputs", 0), count)
    for index, axis in zip(read, node.attr("scan_input_axes", []), strict=False):  # whose numbers ONNX Runtime compares
        dims = node.dims(index)
        if dims is not None and axis and 0 in dims[axis:]:
            yield f"input {index} is {text(dims)}, and has no elements from axis {axis} on, along which it is read"


def _roi_align(node: Node) -> Iterator[str]:
    boxes, batches = node.dims(1), node.dims(2)
    if boxes is not None and (len(boxes) != 2 or differ(boxes[1], 4)):
        yield f"the boxes are {text(boxes)}, and must be [?, 4]"
    if boxes and batches is not None and shapes_differ(batches, boxes[:1]):
        yield f"the batch indices are {text(batches)} for boxes {text(boxes)}"


def _rotary(node: Node) -> Iterator[str]:
    """x[B, H, L, E] or [B, L, H E], cos and sin [P, R / 2] with positions[B, L], or [B, L, R / 2] without."""
    x, cos, sin, positions = (node.dims(index) for index in range(4))
    if x is None or cos is None or sin is None:
        return
    if len(x) not in (3, 4) or shapes_differ(cos, sin):
        yield f"the input is {text(x)}, the cosines {text(cos)} and the sines {text(sin)}"
    elif positions is not None and shapes_differ(positions, (x[0], x[-2])):
        yield f"the positions are {text(positions)}, and must be {text((x[0], x[-2]))}"
    elif len(x) == 3 and (node.attr("num_heads", 0) < 1 or (x[2] or 0) % node.attr("num_heads", 0)):
        yield f"num_heads is {node.attr('num_heads', 0)} for rows of {x[2]} elements"
    else:
        head = x[-1] if len(x) == 4 or x[2] is None else x[2] // int(node.attr("num_heads"))
        turned = node.attr("rotary_embedding_dim", 0) or head
        if turned is not None and differ(cos[-1], turned // 2):
            yield f"the cosines are {text(cos)}, and {turned} elements need {turned // 2}"


def _loss(node: Node) -> Iterator[str]:
    """x[N, C, ...] and classes[N, ...]."""
    x, classes = node.dims(0), node.dims(1)
    if x is not None and classes is not None and len(x) > 1 and shapes_differ(classes, (x[0], *x[2:])):
        yield f"the classes are {text(classes)} for {text(x)}"


def _unpool(node: Node) -> Iterator[str]:
    x, indices = node.dims(0), node.dims(1)
    if x is not None and indices is not None and shapes_differ(x, indices):
        yield f"the indices are {text(indices)} for {text(x)}"


def _deform_conv(node: Node) -> Iterator[str]:
    """The offsets are [N, 2 G K, H', W'] for G groups of K elements of the window, the mask half of that."""
    x, weights, offsets, mask = (node.dims(index) for index in (0, 1, 2, 4))
    if x is None or weights is None or None in (*x, *weights) or not len(x) == len(weights) == 4:
        return
    sizes = [int(size) for size in (*x, *weights) if size is not None]
    kernel = sizes[6:]
    strides, dilations = node.attr("strides") or [1, 1], node.attr("dilations") or [1, 1]
    pads, groups = node.attr("pads") or [0] * 4, int(node.attr("offset_group", 1))
    made = [
        (size + pads[axis] + pads[axis + 2] - dilations[axis] * (kernel[axis] - 1) - 1) // strides[axis] + 1
        for axis, size in enumerate(sizes[2:4])
    ]
    if not sizes[4]:
        yield f"the weights {text(weights)} are for no channel"
    for name, dims, share in (("offsets", offsets, 2), ("mask", mask, 1)):
        wanted = (sizes[0], share * groups * prod(kernel), *made)
        if dims is not None and shapes_differ(dims, wanted):
            yield f"the {name} are {text(dims)}, and must be {text(wanted)}"


_RULES: Mapping[str, Callable[[Node], Iterator[str]]] = {
    **dict.fromkeys(_GATES, _recurrent),
    "BatchNormalization": _batch_norm,
    "Clip": _scalars(1, 2),
    "ConvInteger": _conv_integer,
    "CumProd": _scalars(1),
    "CumSum": _scalars(1),
    "DeformConv": _deform_conv,
    "DequantizeLinear": _quantize,
    "InstanceNormalization": _instance_norm,
    "LayerNormalization": _broadcast_into(1, 2),
    "MatMulInteger": _matmul_integer,
    "MaxUnpool": _unpool,
    "NegativeLogLikelihoodLoss": _loss,
    "PRelu": _broadcast_into(1),
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
    "QuantizeLinear": _quantize,
    "RMSNormalization": _broadcast_into(1),
    "RoiAlign": _roi_align,
    "RotaryEmbedding": _rotary,
    "SoftmaxCrossEntropyLoss": _loss,
    "Trilu": _scalars(1),
}
