"""Constants that say which shape a result has: sizes, counts, pads, bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from math import inf, prod

from fusion.frontends.onnx.checks.dims import text
from fusion.frontends.onnx.node import Node

# Which inputs are lists: one axis, whatever the number of entries.
_LISTS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(
        (
            "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin",
            "ReduceProd", "ReduceSum", "ReduceSumSquare", "Reshape", "Split", "Squeeze", "Tile",
        ),
        (1,),
    ),
    "Slice": (1, 2, 3, 4),
}  # fmt: skip
# Which input is a list, or a scalar in its place.
_NUMBERS = {"CenterCropPad": 1, "Unsqueeze": 1}


def constants_that_shape_nothing(node: Node) -> Iterator[str]:
    """Yield which constants of `node` contradict its inputs."""
    if node.proto.domain:
        return
    for index in _LISTS.get(node.op, ()):
        dims = node.dims(index)
        if dims is not None and len(dims) != 1:
            yield f"input {index} is {text(dims)}, and must be a list"
            return
    numbers = node.dims(_NUMBERS[node.op]) if node.op in _NUMBERS else None
    if numbers is not None and len(numbers) > 1:
        yield f"input {_NUMBERS[node.op]} is {text(numbers)}, and must be a list"
        return
    if node.op in _RULES:
        yield from _RULES[node.op](node)


def _reshape(node: Node) -> Iterator[str]:
    """-1 stands for what is left, 0 for the input's size unless `allowzero` is set."""
    dims, wanted = node.dims(0), node.known_ints(1, "shape")
    if dims is None or wanted is None:
        return
    copied = [] if node.attr("allowzero", 0) == 1 else [at for at, size in enumerate(wanted) if size == 0]
    if wanted.count(-1) > 1 or any(size < -1 for size in wanted):
        yield f"the shape {wanted} must have sizes of 0 or more, and -1 at most once"
        return
    if any(at >= len(dims) for at in copied):
        yield f"the shape {wanted} has a 0 where {text(dims)} has no axis"
        return
    if None in dims:
        return
    sizes = [dims[at] if at in copied else size for at, size in enumerate(wanted)]
    have = prod(size for size in dims if size is not None)
    rest = prod(size for size in sizes if size is not None and size != -1)
    if -1 in sizes and not rest and not have:
        yield f"{text(dims)} has no elements, and the shape is {wanted}: each number in place of -1 would do"
    elif (-1 in sizes and (not rest or have % rest)) or (-1 not in sizes and have != rest):
        yield f"{text(dims)} has {have} elements, and the shape is {wanted}"


def _not_negative(index: int) -> Callable[[Node], Iterator[str]]:
    def check(node: Node) -> Iterator[str]:
        sizes = node.known_ints(index)
        if sizes is not None and any(size < 0 for size in sizes):
            yield f"input {index} is {sizes}, and must be 0 or more each"

    return check


def _window_size(node: Node) -> Iterator[str]:
    dims = node.dims(0)
    if dims is not None and (0 in dims or len(dims) > 1):
        yield f"the size is {text(dims)}, and must be a scalar"
    yield from _not_negative(0)(node)


def _not_a_scalar(node: Node) -> Iterator[str]:
    if node.dims(0) == ():
        yield "the input is a scalar, and must have an axis"


def _made_shape(node: Node) -> Iterator[str]:
    yield from _not_a_scalar(node)
    yield from _not_negative(0)(node)


def _dft(node: Node) -> Iterator[str]:
    length = node.known_ints(1)
    if length is not None and min(length, default=1) < 1:
        yield f"dft_length is {length}, and must be 1 or more"


def _stft(node: Node) -> Iterator[str]:
    """ONNX Runtime ends the process where a frame has no element."""
    signal, window, length = node.dims(0), node.dims(2), node.known_ints(3)
    if window is not None and (len(window) != 1 or window[0] == 0):
        yield f"the window is {text(window)}, and must be a row of 1 element or more"
        return
    if length is not None and min(length, default=1) < 1:
        yield f"frame_length is {length}, and must be 1 or more"
    frame = length[0] if length else window[0] if window else None
    if signal is not None and len(signal) not in (2, 3):
        yield f"the signal is {text(signal)}, and must be a batch of rows of numbers, real or complex"
    elif signal is not None and signal[1] is not None and frame is not None and signal[1] < frame:
        yield f"the signal is {text(signal)}, and has no frame of {frame} elements"


def _expand(node: Node) -> Iterator[str]:
    dims, wanted = node.dims(0), node.known_ints(1)
    if dims is None or wanted is None:
        return
    if any(size < 0 for size in wanted):
        yield f"the shape is {wanted}, and must be 0 or more each"
    pairs = zip(dims[::-1], wanted[::-1], strict=False)
    if any(have is not None and 1 not in (have, want) and have != want for have, want in pairs):
        yield f"{text(dims)} and the shape {wanted} do not broadcast"


def _tile(node: Node) -> Iterator[str]:
    dims, repeats, counts = node.dims(0), node.known_ints(1), node.dims(1)
    if dims is None or node.opset < 6:
        return
    if counts is not None and (len(counts) != 1 or counts[0] not in (None, len(dims))):
        yield f"the repeats are {text(counts)}, and must be one for each axis of {text(dims)}"
    elif repeats is not None and any(count < 0 for count in repeats):
        yield f"the repeats are {repeats}, and must be 0 or more for each axis of {text(dims)}"


def _pad(node: Node) -> Iterator[str]:
    """Pads before and after each of the named axes; negative ones cut off no more than there is."""
    dims, pads, axes, value = node.dims(0), node.known_ints(1, "pads"), node.known_ints(3), node.dims(2)
    if value is not None and prod(size or 1 for size in value) != 1:
        yield f"the value is {text(value)}, and must be one number"
    if dims is None or pads is None or (node.has(3) and axes is None):
        return
    axes = list(range(len(dims))) if axes is None else axes
    if len(pads) != 2 * len(axes):
        yield f"there are {len(pads)} pads, and {len(axes)} axes need {2 * len(axes)}"
        return
    mode = node.attr("mode", "constant")
    for at, axis in enumerate(axes):
        size, before, after = dims[axis], pads[at], pads[at + len(axes)]
        if size is None:
            continue
        if size + before + after < 0:
            yield f"pads of {before} and {after} leave nothing of the {size} entries of axis {axis}"
        elif size + min(before, 0) + min(after, 0) <= 0 and mode != "constant" and (before > 0 or after > 0):
            yield f"mode is {mode!r}, and axis {axis} has no entry to pad with"


def _split(node: Node) -> Iterator[str]:
    dims, sizes, outputs = node.dims(0), node.known_ints(1, "split"), len(node.proto.output)
    count = node.attr("num_outputs")
    if count is not None and count != outputs:
        yield f"num_outputs is {count}, and there are {outputs} outputs"
    if count is not None and node.has(1):
        yield "both num_outputs and the sizes are given"
    if not dims:
        return
    length = dims[int(node.attr("axis", 0))]
    # All parts but the last are as long as this one, which has an entry.
    if count is not None and length is not None and (count > length or -(-length // count) * (count - 1) >= length):
        yield f"num_outputs is {count}, and there are {length} entries: parts of one size leave none for the last"
    if sizes is None or length is None:
        if length is not None and not node.has(1) and count is None and length % outputs:
            yield f"{length} entries do not divide into {outputs} equal parts"
    elif len(sizes) != outputs or min(sizes, default=0) < 0 or sum(sizes) != length:
        yield f"the sizes are {sizes}, for {outputs} outputs of {length} entries together"


def _slice(node: Node) -> Iterator[str]:
    starts, ends, axes, steps = (
        node.known_ints(index, name) for index, name in enumerate(("starts", "ends", "axes", "steps"), 1)
    )
    lengths = {len(items) for items in (starts, ends, axes, steps) if items is not None}
    if len(lengths) > 1:
        yield f"starts {starts}, ends {ends}, axes {axes} and steps {steps} differ in length"
    if steps is not None and 0 in steps:
        yield f"steps is {steps}, and a step must not be 0"
    dims = node.dims(0)
    if dims is not None and axes is None and starts is not None and len(starts) > len(dims):
        yield f"starts {starts} has more entries than {text(dims)} has axes"


def _top_k(node: Node) -> Iterator[str]:
    dims, counts = node.dims(0), node.known_ints(1, "k")
    if dims is None or counts is None:
        return
    if len(counts) != 1:
        yield f"k is {counts}, and must be one number"
        return
    size = dims[int(node.attr("axis", -1))] if dims else 1
    if counts[0] < 0 or (size is not None and counts[0] > size):
        yield f"k is {counts[0]}, and must be from 0 to {'the size of the axis' if size is None else size}"


def _one_hot(node: Node) -> Iterator[str]:
    depth, dims = node.known_ints(1), node.dims(1)
    if dims is not None and len(dims) > 1:
        yield f"the depth is {text(dims)}, and must be one number"
    elif depth is not None and (len(depth) != 1 or depth[0] <= 0):
        yield f"the depth is {depth}, and must be 1 or more"


def _range(node: Node) -> Iterator[str]:
    if node.is_const(2) and not node.needed_const(2).any():
        yield "delta is 0"


def _reverse_sequence(node: Node) -> Iterator[str]:
    dims, lengths = node.dims(0), node.dims(1)
    time, batch = int(node.attr("time_axis", 0)), int(node.attr("batch_axis", 1))
    if {time, batch} != {0, 1}:
        yield f"time_axis is {time} and batch_axis {batch}: one must be 0, the other 1"
    elif dims is not None and len(dims) < 2:
        yield f"the input is {text(dims)}, and must have 2 axes or more"
    elif dims is not None and lengths is not None:
        size, given = dims[time], node.known_ints(1)
        if given is not None and size is not None and any(not 0 <= length <= size for length in given):
            yield f"the lengths are {given}, and must be from 0 to {size} each"


def _tensor_scatter(node: Node) -> Iterator[str]:
    """Rows begin inside of their axis, and end there; in a ring they begin wherever counting on leads to."""
    rows, update, starts = node.dims(0), node.dims(1), node.known_ints(2)
    axis = int(node.attr("axis", -2))
    if starts is None or rows is None or update is None or not -len(rows) <= axis < len(rows) == len(update):
        return
    size, new, is_ring = rows[axis], update[axis], node.attr("mode", "linear") == "circular"
    last = inf if is_ring or size is None or new is None else size - new
    if any(not 0 <= start <= last for start in starts):
        yield f"the rows begin at {starts}, and must begin from 0 {'on' if last == inf else f'to {last}'}"


def _affine_grid(node: Node) -> Iterator[str]:
    theta, size = node.dims(0), node.known_ints(1)
    if theta is None or size is None or len(theta) != 3:
        return
    if len(size) not in (4, 5) or min(size) <= 0 or theta[0] not in (None, size[0]) or theta[1] != len(size) - 2:
        yield f"the size is {size} for transforms {text(theta)}"


def _scales(node: Node) -> Iterator[str]:
    """Of an Upsample, and of a Resize, which may shrink too."""
    at = 1 if node.op == "Upsample" or node.opset < 11 else 2
    scales = node.needed_const(at).reshape(-1).tolist() if node.is_const(at) else node.attr("scales") or []
    if node.op == "Upsample" and not all(scale >= 1 for scale in scales):
        yield f"the scales are {scales}, and must be 1 or more each"
    elif not all(scale > 0 for scale in scales):
        yield f"the scales are {scales}, and must be more than 0 each"


def _tf_idf(node: Node) -> Iterator[str]:
    """Of integers. ONNX Runtime reads behind the entries of ngram_indexes where the n-grams that it looks for, and
    those that are shorter, are more; with pool_strings it looks for none."""
    dims = node.dims(0)
    if dims is not None and (len(dims) not in (1, 2) or (len(dims) == 2 and dims[0] == 0)):
        yield f"the input is {text(dims)}, and must be a row, or a batch of 1 row or more"
    if node.attr("pool_strings"):
        return
    entries = node.attr("ngram_indexes", [])
    begins = [*node.attr("ngram_counts", []), len(node.attr("pool_int64s", []))]
    least, most = (node.attr(f"{end}_gram_length", 1) for end in ("min", "max"))
    numbers = [(end - begin) // n for n, (begin, end) in enumerate(pairwise(begins), 1)][:most]
    if any(numbers[least - 1 :]) and len(entries) < sum(numbers):
        yield f"ngram_indexes has {len(entries)} entries for {sum(numbers)} n-grams"


def _col2im(node: Node) -> Iterator[str]:
    columns, image, block = node.dims(0), node.known_ints(1), node.known_ints(2)
    for name, sizes in (("image_shape", image), ("block_shape", block)):
        if sizes is not None and min(sizes, default=1) <= 0:
            yield f"{name} is {sizes}, and must be 1 or more each"
            return
    rows = columns[1] if columns is not None and len(columns) == 3 else None
    if rows is not None and block is not None and (not rows or rows % prod(block)):
        yield f"{rows} rows of columns are no multiple of the block {block}"


_RULES: Mapping[str, Callable[[Node], Iterator[str]]] = {
    "AffineGrid": _affine_grid,
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow"), _window_size),
    "CenterCropPad": _not_negative(1),
    "Col2Im": _col2im,
    "ConstantOfShape": _made_shape,
    "CumSum": _not_a_scalar,
    "DFT": _dft,
    "Expand": _expand,
    "OneHot": _one_hot,
    "Pad": _pad,
    "Range": _range,
    "Reshape": _reshape,
    "Resize": _scales,
    "ReverseSequence": _reverse_sequence,
    "STFT": _stft,
    "Slice": _slice,
    "Split": _split,
    "TensorScatter": _tensor_scatter,
    "TfIdfVectorizer": _tf_idf,
    "Tile": _tile,
    "TopK": _top_k,
    "Upsample": _scales,
}
