"""Operands whose shapes must fit each other, and the attributes that divide them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import zip_longest

from fusion.frontends.onnx.checks.dims import Dims, differ, shapes_differ, text
from fusion.frontends.onnx.node import Node

# Which input is the right operand; the left one is the first.
_PRODUCTS = {"MatMul": 1, "MatMulInteger": 1, "QLinearMatMul": 3}


def operands_that_do_not_fit(node: Node) -> Iterator[str]:
    """Yield where operands contradict each other."""
    if not node.proto.domain and node.op in _RULES:
        yield from _RULES[node.op](node)


def _product(node: Node) -> Iterator[str]:
    yield from _matrices(node.dims(0), node.dims(_PRODUCTS[node.op]))


def _matrices(left: Dims | None, right: Dims | None) -> Iterator[str]:
    """[..., M, K] @ [..., K, N], where [K] may stand for [1, K] and for [K, 1]."""
    if not left or not right:
        return
    inner = left[-1], right[-2:][0]
    if differ(*inner):
        yield f"the rows of {text(left)} have {inner[0]} elements, the columns of {text(right)} have {inner[1]}"
    if any(1 not in pair and differ(*pair) for pair in zip(left[-3::-1], right[-3::-1], strict=False)):
        yield f"the axes of {text(left)} and {text(right)} before the last two do not broadcast"


def _gemm(node: Node) -> Iterator[str]:
    """[M, K] @ [K, N] + [M, N], the first two perhaps transposed, the last one perhaps broadcast."""
    left, right, bias = (node.dims(index) for index in range(3))
    if left is None or right is None or not len(left) == len(right) == 2:
        return
    left = left[::-1] if node.attr("transA", 0) else left
    right = right[::-1] if node.attr("transB", 0) else right
    yield from _matrices(left, right)
    result = left[0], right[1]
    if bias is None:
        return
    known = zip(bias[::-1], result[::-1], strict=False)
    if len(bias) > 2 or any(size != 1 and differ(size, wanted) for size, wanted in known):
        yield f"what is added is {text(bias)} and does not broadcast to {text(result)}"


def _attention(node: Node) -> Iterator[str]:
    """Queries, keys and values are [B, H, L, E], or [B, L, H E] and the node says how many heads there are."""
    query, key, value = (node.dims(index) for index in range(3))
    if query is None or key is None or value is None:
        return
    yield from _attention_mask(node, query[-2], key[-2])
    shapes = f"queries, keys and values are {text(query)}, {text(key)} and {text(value)}"
    if len({len(query), len(key), len(value)}) > 1 or len(query) not in (3, 4):
        yield f"{shapes}: all must have 3 axes, or all 4"
        return
    if differ(query[0], key[0]) or differ(query[0], value[0]) or differ(key[-2], value[-2]):
        yield shapes
    if len(query) == 3:
        yield from _heads(node, query[2], key[2], value[2])
        return
    if differ(key[1], value[1]) or differ(query[3], key[3]):
        yield shapes
    for name, heads in (("q_num_heads", query[1]), ("kv_num_heads", key[1])):
        if 0 < node.attr(name, 0) < 1 << 31 and differ(heads, node.attr(name)):
            yield f"{name} is {node.attr(name)}, and there are {heads} heads"
    if query[1] is not None and key[1] is not None and (not key[1] or query[1] % key[1]):
        yield f"{query[1]} heads of queries cannot share {key[1]} heads of keys"


def _attention_mask(node: Node, rows: int | None, columns: int | None) -> Iterator[str]:
    """[..., L, S], S keys and those of before; since 24 it may be shorter, since 25 be for all of L at once."""
    mask, past, mode = node.dims(3), node.dims(4), node.attr("qk_matmul_output_mode", 0)
    if node.wants(3) and mode not in (0, 1, 2, 3):
        yield f"qk_matmul_output_mode is {mode}, and must be from 0 to 3"
    if mask is None:
        return
    before = past[-2] if past else None if node.has(4) else 0
    total = None if columns is None or before is None else columns + before
    if node.opset >= 25 and (len(mask) == 1 or (len(mask) > 1 and mask[-2] == 1)):
        mask = (rows, mask[-1])
    last = mask[-1] if mask else None
    shorter = node.opset >= 24 and last is not None and total is not None and last < total
    if not 2 <= len(mask) <= 4 or differ(mask[-2], rows) or (differ(last, total) and not shorter):
        yield f"the mask is {text(mask)} for {text((rows, total))} products"


def _heads(node: Node, *widths: int | None) -> Iterator[str]:
    counts = [int(node.attr(name, 0)) for name in ("q_num_heads", "kv_num_heads")]
    for name, count in zip(("q_num_heads", "kv_num_heads"), counts, strict=True):
        if count < 1:
            yield f"{name} is {count}, and must be 1 or more where inputs have 3 axes"
            return
    if counts[0] % counts[1]:
        yield f"q_num_heads is {counts[0]}, and must be a multiple of kv_num_heads, which is {counts[1]}"
    sizes = []
    for width, count in zip(widths, (counts[0], counts[1], counts[1]), strict=True):
        if width is not None and width % count:
            yield f"rows of {width} elements do not divide into {count} heads"
        sizes.append(None if width is None else width // count)
    if differ(sizes[0], sizes[1]):
        yield f"heads of queries have {sizes[0]} elements, those of keys {sizes[1]}"


def _concat(node: Node) -> Iterator[str]:
    """All alike but for one axis."""
    shapes = [node.dims(index) for index in range(len(node.proto.input))]
    known = [shape for shape in shapes if shape is not None]
    axis = int(node.attr("axis", 1))
    for shape in known[1:]:
        first = known[0]
        if len(shape) != len(first) or any(
            differ(*pair) for at, pair in enumerate(zip(first, shape, strict=True)) if at != axis % len(first)
        ):
            yield f"{text(first)} and {text(shape)} differ outside axis {axis}"


def _blocks(node: Node) -> Iterator[str]:
    """[N, C, H, W] whose channels, or whose height and width, divide into blocks."""
    image, block = node.dims(0), int(node.attr("blocksize", 1))
    if image is None or len(image) != 4:
        return
    parts: tuple[tuple[int | None, int, str], ...] = ((image[2], block, "rows"), (image[3], block, "columns"))
    if node.op == "DepthToSpace":
        parts = ((image[1], block**2, "channels"),)
    for size, share, what in parts:
        if size is not None and size % share:
            yield f"blocksize is {block}, and {size} {what} are no multiple of {share}"


def _gather_elements(node: Node) -> Iterator[str]:
    """Indices lie inside the data along every axis but one."""
    data, indices = node.dims(0), node.dims(1)
    if data is None or indices is None:
        return
    if len(data) != len(indices):
        yield f"the indices are {text(indices)} for data {text(data)}: both must have as many axes"
        return
    axis = int(node.attr("axis", 0)) % max(len(data), 1)
    for at, (size, count) in enumerate(zip(data, indices, strict=True)):
        if at != axis and size is not None and count is not None and count > size:
            yield f"the indices are {text(indices)} for data {text(data)}: axis {at} is longer than the data's"


def _gather_nd(node: Node) -> Iterator[str]:
    """data [B..., D...] and indices [B..., I..., K], K at most as many as D."""
    data, indices, batch = node.dims(0), node.dims(1), int(node.attr("batch_dims", 0))
    if data is None or indices is None:
        return
    if not data or not indices or not 0 <= batch < min(len(data), len(indices)):
        yield f"batch_dims is {batch} for data {text(data)} and indices {text(indices)}"
    elif indices[-1] is not None and indices[-1] > len(data) - batch:
        yield f"indices of {indices[-1]} elements point into {len(data) - batch} axes"
    elif any(map(differ, data[:batch], indices[:batch])):
        yield f"the first {batch} axes of {text(data)} and {text(indices)} differ"


def _scatter_nd(node: Node) -> Iterator[str]:
    """data [D...], indices [I..., K] and updates [I..., D[K:]...]."""
    data, indices, updates = (node.dims(index) for index in range(3))
    if data is None or indices is None or updates is None:
        return
    if not data or not indices:
        yield f"data {text(data)} and indices {text(indices)} must have an axis each"
    elif indices[-1] is not None:
        wanted = (*indices[:-1], *data[indices[-1] :])
        if indices[-1] > len(data):
            yield f"indices of {indices[-1]} elements point into {len(data)} axes"
        elif shapes_differ(wanted, updates):
            yield f"the updates are {text(updates)} and not {text(wanted)}"


def _scatter_elements(node: Node) -> Iterator[str]:
    """Indices and updates are alike and lie inside the data along every axis but one."""
    data, indices, updates = (node.dims(index) for index in range(3))
    if indices is not None and updates is not None and shapes_differ(indices, updates):
        yield f"the indices are {text(indices)} and the updates {text(updates)}"
    if data is not None and indices is not None:
        yield from _gather_elements(node)


_BROADCASTS = 8
"""Since this operator set, sums and extremes of several operands."""


def _alike(node: Node) -> Iterator[str]:
    first, *others = (node.dims(index) for index in range(len(node.proto.input)))
    for dims in others:
        if first is not None and dims is not None and shapes_differ(first, dims):
            yield f"{text(first)} and {text(dims)} must be alike before operator set {_BROADCASTS}"
            return


_BINARY_BROADCASTS = 7
"""Since this one, operators of two operands."""
_BINARY = (
    "Add", "And", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater", "GreaterOrEqual",
    "Less", "LessOrEqual", "Mod", "Mul", "Or", "Pow", "Sub", "Where", "Xor",
)  # fmt: skip


def _elementwise(node: Node) -> Iterator[str]:
    if node.opset >= _BINARY_BROADCASTS:
        yield from _broadcast(node)


def _variadic(node: Node) -> Iterator[str]:
    yield from _alike(node) if node.opset < _BROADCASTS else _broadcast(node)


def _broadcast(node: Node) -> Iterator[str]:
    """Axes counted from the last have one size, or 1."""
    shapes = [dims for index in range(len(node.proto.input)) if (dims := node.dims(index)) is not None]
    for axis in zip_longest(*(shape[::-1] for shape in shapes), fillvalue=1):
        if len({size for size in axis if size not in (1, None)}) > 1:
            yield f"{' and '.join(map(text, shapes))} do not broadcast"
            return


_RULES: Mapping[str, Callable[[Node], Iterator[str]]] = {
    **dict.fromkeys(_PRODUCTS, _product),
    **dict.fromkeys(_BINARY, _elementwise),
    **dict.fromkeys(("Max", "Mean", "Min", "Sum"), _variadic),
    "Attention": _attention,
    "Concat": _concat,
    "DepthToSpace": _blocks,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Gemm": _gemm,
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "SpaceToDepth": _blocks,
}
