"""Operators over open axes, which random models take and put behind one another: see `random_models`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import TensorProto, helper

from tests.symbolic.random_graph import Dims, Graph

_EVERY = 2**31 - 1


def _is_open(dims: Dims) -> bool:
    return any(isinstance(dim, str) for dim in dims)


def _open_axis(graph: Graph, dims: Dims) -> int:
    return int(graph.rng.choice([axis for axis, dim in enumerate(dims) if isinstance(dim, str)]))


def _with(dims: Dims, axis: int, dim: int | str) -> Dims:
    return (*dims[:axis], dim, *dims[axis + 1 :])


def slice_open(graph: Graph) -> None:
    """Cut rows off one or both ends, take every second one, or turn them round."""
    found = graph.pick(_is_open)
    if found is not None:
        name, dims = found
        axis = _open_axis(graph, dims)
        starts, ends, steps, said = [
            (1, _EVERY, 1, "{}-1"), (0, -1, 1, "{}-1"), (1, -1, 1, "{}-2"), (0, _EVERY, 2, "({}+1)/2"),
            (1, _EVERY, 2, "{}/2"), (-1, -_EVERY, -1, "{}"), (-2, _EVERY, 1, "min({},2)"), (0, 3, 1, "min({},3)"),
        ][graph.rng.integers(8)]  # fmt: skip
        made = _with(dims, axis, said.format(dims[axis]))
        places = [graph.integers(value) for value in (starts, ends, axis, steps)]
        graph.add("Slice", [name, *places], made)


def softmax_open(graph: Graph) -> None:
    found = graph.pick(_is_open)
    if found is not None:
        operator = str(graph.rng.choice(["Softmax", "LogSoftmax"]))
        graph.add(operator, [found[0]], found[1], axis=_open_axis(graph, found[1]))


def norm_open(graph: Graph) -> None:
    """Normalise over an open axis, as exporters of old write it."""
    found = graph.pick(_is_open)
    if found is not None:
        name, dims = found
        axis = _open_axis(graph, dims)
        one = _with(dims, axis, 1)
        mean = graph.add("ReduceMean", [name], one, axes=[axis], keepdims=1)
        centred = graph.add("Sub", [name, mean], dims)
        square = graph.add("Mul", [centred, centred], dims)
        variance = graph.add("ReduceMean", [square], one, axes=[axis], keepdims=1)
        above = graph.add("Add", [variance, graph.weight(np.float32([1e-3]))], one)
        root = graph.add("Sqrt", [above], one)
        graph.add("Div", [centred, root], dims)


def instance_norm(graph: Graph) -> None:
    found = graph.pick(lambda dims: len(dims) >= 3 and isinstance(dims[1], int))
    if found is not None and isinstance(found[1][1], int):
        scale, bias = graph.normal(found[1][1]), graph.normal(found[1][1])
        graph.add("InstanceNormalization", [found[0], scale, bias], found[1], epsilon=1e-3)


def reduce_open(graph: Graph) -> None:
    """Reduce some axes, an open one among them."""
    found = graph.pick(_is_open)
    if found is not None:
        name, dims = found
        kinds = ["ReduceMax", "ReduceMin", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp"]
        axes = {_open_axis(graph, dims), *(axis for axis in range(len(dims)) if graph.rng.integers(4) == 0)}
        keep = int(graph.rng.integers(2))
        made = tuple(1 if axis in axes else dim for axis, dim in enumerate(dims) if keep or axis not in axes)
        if made or keep:
            bounded = graph.add("Tanh", [name], dims)
            graph.add(str(graph.rng.choice(kinds)), [bounded], made, axes=sorted(axes), keepdims=keep)


def product_open(graph: Graph) -> None:
    """Multiply all along an open axis: numbers near 1, of which many are no infinity."""
    found = graph.pick(_is_open)
    if found is not None:
        name, dims = found
        axis = _open_axis(graph, dims)
        small = graph.add("Mul", [graph.add("Tanh", [name], dims), graph.weight(np.float32([0.01]))], dims)
        near = graph.add("Add", [small, graph.weight(np.float32([1.0]))], dims)
        graph.add("ReduceProd", [near], _with(dims, axis, 1), axes=[axis], keepdims=1)


def place_of_largest(graph: Graph) -> None:
    found = graph.pick(_is_open)
    if found is not None:
        name, dims = found
        axis = _open_axis(graph, dims)
        rounded = graph.add("Round", [name], dims)  # ties as well
        places = f"places{len(graph.nodes)}"
        graph.nodes.append(helper.make_node("ArgMax", [rounded], [places], axis=axis, keepdims=1))
        graph.add("Cast", [places], _with(dims, axis, 1), to=TensorProto.FLOAT)


def concat_open(graph: Graph) -> None:
    """Put a tensor behind one of any length, or behind itself, or a constant row before all."""
    found = graph.pick(lambda dims: len(dims) > 1 and _is_open(dims))
    if found is not None:
        dims = found[1]
        axis = _open_axis(graph, dims)
        rest = [dim for at, dim in enumerate(dims) if at != axis]
        other = graph.pick(
            lambda each: len(each) == len(dims) and [dim for at, dim in enumerate(each) if at != axis] == rest
        )
        assert other is not None
        both = [found, other][:: int(graph.rng.choice([1, -1]))]
        (first, before), (second, behind) = both
        graph.add("Concat", [first, second], _with(dims, axis, f"{before[axis]}+{behind[axis]}"), axis=axis)


def token_before(graph: Graph) -> None:
    """Put a row of weights before those of each image, as classifiers do."""
    found = graph.pick(lambda dims: len(dims) == 3 and isinstance(dims[2], int))
    if found is not None and isinstance(found[1][2], int):
        name, (batch, length, width) = found
        sizes, shape = [_size(graph, name, 0), graph.integers(1), graph.integers(width)], f"shape{len(graph.nodes)}"
        graph.nodes.append(helper.make_node("Concat", sizes, [shape], axis=0))
        token = graph.add("Expand", [graph.normal(1, 1, width), shape], (batch, 1, width))
        graph.add("Concat", [token, name], (batch, f"1+{length}", width), axis=1)


def gather_constant(graph: Graph) -> None:
    """Read the first entries of an open axis, or some of a static one, by constant places."""
    found = graph.pick(lambda dims: len(dims) > 1)
    if found is not None:
        name, dims = found
        axis = int(graph.rng.integers(len(dims)))
        size = dims[axis]
        places = graph.rng.integers(-size, size, 3) if isinstance(size, int) else np.array([0, -1, 0])
        graph.add("Gather", [name, graph.weight(places.astype(np.int64))], _with(dims, axis, 3), axis=axis)


def expand_like(graph: Graph) -> None:
    """Bring a mean back to the shape of what it is of by `Expand`."""
    found = graph.pick(_is_open)
    if found is not None:
        name, dims = found
        axis = _open_axis(graph, dims)
        mean = graph.add("ReduceMean", [name], _with(dims, axis, 1), axes=[axis], keepdims=1)
        graph.add("Expand", [mean, _shape(graph, name)], dims)


def where(graph: Graph) -> None:
    first = graph.pick() or graph.values[0]
    second = graph.pick(lambda dims: dims == first[1]) or first
    condition = f"condition{len(graph.nodes)}"
    graph.nodes.append(helper.make_node("Greater", [first[0], graph.weight(np.float32(0.1))], [condition]))
    graph.add("Where", [condition, second[0], graph.weight(np.float32(-1))], first[1])


def mask_places(graph: Graph) -> None:
    """Keep what is at the first places of an open axis: all that `Range` says are before 4."""
    found = graph.pick(lambda dims: isinstance(dims[-1], str) or (len(dims) > 1 and isinstance(dims[-2], str)))
    if found is not None:
        name, dims = found
        axis = len(dims) - 1 if isinstance(dims[-1], str) else len(dims) - 2
        places, early = (f"{kind}{len(graph.nodes)}" for kind in ("places", "early"))
        zero, one = (graph.weight(np.array(value, np.int64)) for value in (0, 1))
        graph.nodes.append(helper.make_node("Range", [zero, _scalar(graph, name, axis), one], [places]))
        graph.nodes.append(helper.make_node("Less", [places, graph.weight(np.array(4, np.int64))], [early]))
        if axis < len(dims) - 1:
            column = f"column{len(graph.nodes)}"
            graph.nodes.append(helper.make_node("Unsqueeze", [early, graph.integers(1)], [column]))
            early = column
        graph.add("Where", [early, name, graph.weight(np.float32(0))], dims)


def triangle(graph: Graph) -> None:
    """Mask scores of all places with each other as a decoder does."""
    found = graph.pick(lambda dims: len(dims) == 3 and isinstance(dims[1], str) and isinstance(dims[2], int))
    if found is not None:
        name, (batch, length, width) = found
        turned = graph.add("Transpose", [name], (batch, width, length), perm=[0, 2, 1])
        scores = graph.add("MatMul", [name, turned], (batch, length, length))
        graph.add("Trilu", [scores], (batch, length, length), upper=int(graph.rng.integers(2)))


def running_sum(graph: Graph) -> None:
    found = graph.pick(_is_open)
    if found is not None:
        axis = graph.weight(np.array(_open_axis(graph, found[1]), np.int64))
        flags = {"exclusive": int(graph.rng.integers(2)), "reverse": int(graph.rng.integers(2))}
        bounded = graph.add("Tanh", [found[0]], found[1])
        graph.add("CumSum", [bounded, axis], found[1], **flags)


def split(graph: Graph) -> None:
    found = graph.pick(lambda dims: isinstance(dims[-1], int) and dims[-1] > 2)
    if found is not None and isinstance(found[1][-1], int):
        name, dims = found
        first = int(graph.rng.integers(1, dims[-1]))
        parts = [f"part{len(graph.nodes)}_{number}" for number in range(2)]
        sizes = graph.integers(first, dims[-1] - first)
        graph.nodes.append(helper.make_node("Split", [name, sizes], parts, axis=len(dims) - 1))
        graph.values += [(parts[0], (*dims[:-1], first)), (parts[1], (*dims[:-1], dims[-1] - first))]


def pad(graph: Graph) -> None:
    found = graph.pick(_is_open)
    if found is not None:
        name, dims = found
        axis, mode = _open_axis(graph, dims), str(graph.rng.choice(["constant", "edge", "reflect"]))
        pads = np.zeros(2 * len(dims), np.int64)
        pads[axis], pads[axis + len(dims)] = graph.rng.integers(0, 3, 2)
        made = _with(dims, axis, f"{dims[axis]}+{pads.sum()}")
        graph.add("Pad", [name, graph.weight(pads)], made, mode=mode)


def window_along(graph: Graph) -> None:
    """Add a convolution or a pool along the length."""
    found = graph.pick(lambda dims: len(dims) == 3 and isinstance(dims[1], str) and isinstance(dims[2], int))
    if found is not None and isinstance(found[1][2], int):
        name, (batch, length, width) = found
        turned = graph.add("Transpose", [name], (batch, width, length), perm=[0, 2, 1])
        taps, stride = int(graph.rng.integers(1, 5)), int(graph.rng.choice([1, 1, 2]))
        pads = [int(number) for number in graph.rng.integers(0, (taps + 1) // 2 + 1, 2)]
        kind = graph.rng.integers(4)
        options = {"kernel_shape": [taps], "strides": [stride], "pads": [min(each, taps - 1) for each in pads]}
        more = sum(options["pads"]) - taps
        after = f"({length}+{more})/{stride}+1"
        if kind == 0:
            pool = str(graph.rng.choice(["MaxPool", "AveragePool"]))
            made = graph.add(pool, [turned], (batch, width, after), **options)
        elif kind == 1:
            weight = graph.normal(width, 1, taps)
            made = graph.add("Conv", [turned, weight], (batch, width, after), group=width, **options)
        else:
            width, before = int(graph.rng.choice([4, 8, 24])), width
            weight = graph.normal(width, before, taps)
            made = graph.add("Conv", [turned, weight, graph.normal(width)], (batch, width, after), **options)
        graph.add("Transpose", [made], (batch, after, width), perm=[0, 2, 1])


def pool_all(graph: Graph) -> None:
    found = graph.pick(lambda dims: len(dims) >= 3)
    if found is not None:
        made = (*found[1][:2], *(1 for _ in found[1][2:]))
        graph.add(str(graph.rng.choice(["GlobalAveragePool", "GlobalMaxPool"])), [found[0]], made)


def repeat(graph: Graph) -> None:
    """Make the rows twice as many: by Resize or Tile."""
    found = graph.pick(lambda dims: len(dims) == 3 and isinstance(dims[1], str))
    if found is not None:
        name, (batch, length, width) = found
        made = (batch, f"2*{length}", width)
        kind = graph.rng.integers(4)
        scales = graph.weight(np.float32([1, 2, 1]))
        if kind == 0:
            graph.add("Tile", [name, graph.integers(1, 2, 1)], made)
        elif kind == 1:
            graph.add(
                "Resize", [name, "", scales], made, mode="nearest",
                coordinate_transformation_mode="asymmetric", nearest_mode="floor",
            )  # fmt: skip
        elif kind == 2:
            graph.add("Resize", [name, "", scales], made, mode="linear")
        else:
            graph.add("Resize", [name, "", scales], made, mode="linear", coordinate_transformation_mode="align_corners")


def flatten(graph: Graph) -> None:
    """Put the rows of each image behind one another, and shape them again as they were."""
    found = graph.pick(lambda dims: len(dims) == 3 and isinstance(dims[2], int))
    if found is not None and isinstance(found[1][2], int):
        name, (batch, length, width) = found
        flat = graph.add("Reshape", [name, graph.integers(0, -1)], (batch, f"{length}*{width}"))
        if graph.rng.integers(2):
            shared = graph.add("Softmax", [flat], (batch, f"{length}*{width}"), axis=-1)
            graph.add("Reshape", [shared, _shape(graph, name)], found[1])


def scale_by_length(graph: Graph) -> None:
    """Divide by the root of a size."""
    found = graph.pick(_is_open)
    if found is not None:
        name, dims = found
        wide, root = (f"{kind}{len(graph.nodes)}" for kind in ("wide", "root"))
        axis = _open_axis(graph, dims)
        scalar = _scalar(graph, name, axis)
        graph.nodes.append(helper.make_node("Cast", [scalar], [wide], to=TensorProto.FLOAT))
        graph.nodes.append(helper.make_node("Sqrt", [wide], [root]))
        graph.add("Div", [name, root], dims)


def remember(graph: Graph) -> None:
    """Add a recurrent layer over the length."""
    found = graph.pick(lambda dims: len(dims) == 3 and isinstance(dims[1], str) and isinstance(dims[2], int))
    if found is not None and isinstance(found[1][2], int):
        name, (batch, length, width) = found
        kind, gates = [("GRU", 3), ("LSTM", 4), ("RNN", 1)][graph.rng.integers(3)]
        hidden = 4
        first = graph.add("Transpose", [name], (length, batch, width), perm=[1, 0, 2])
        weights = [graph.normal(1, gates * hidden, each) for each in (width, hidden)]
        made = graph.add(kind, [first, *weights], (length, 1, batch, hidden), hidden_size=hidden)
        rows = graph.add("Squeeze", [made, graph.integers(1)], (length, batch, hidden))
        graph.add("Transpose", [rows], (batch, length, hidden), perm=[1, 0, 2])


def contract(graph: Graph) -> None:
    found = graph.pick(lambda dims: len(dims) == 3)
    if found is not None:
        name, (batch, length, width) = found
        text, made = [
            ("bld,bmd->blm", (batch, length, length)), ("bld,bld->bl", (batch, length)), ("bld->db", (width, batch)),
            ("bld,ble->bde", (batch, width, width)),
        ][graph.rng.integers(4)]  # fmt: skip
        small = graph.add("Tanh", [name], found[1])
        graph.add("Einsum", [small, small] if "," in text else [small], made, equation=text)


def turn(graph: Graph) -> None:
    """Swap any axes, the first one too."""
    found = graph.pick(lambda dims: len(dims) > 1)
    if found is not None:
        axes = [int(axis) for axis in graph.rng.permutation(len(found[1]))]
        graph.add("Transpose", [found[0]], tuple(found[1][axis] for axis in axes), perm=axes)


def best(graph: Graph) -> None:
    """Take the largest of the last axis."""
    found = graph.pick(lambda dims: isinstance(dims[-1], int) and dims[-1] > 2)
    if found is not None:
        name, dims = found
        values, places = (f"{kind}{len(graph.nodes)}" for kind in ("values", "places"))
        graph.nodes.append(helper.make_node("TopK", [name, graph.integers(2)], [values, places], axis=len(dims) - 1))
        graph.values.append((values, (*dims[:-1], 2)))


def best_of_open(graph: Graph) -> None:
    """Take the largest along an open axis: all, one of two, or up to three."""
    found = graph.pick(_is_open)
    if found is not None:
        name, dims = found
        axis = _open_axis(graph, dims)
        size = _size(graph, name, axis)
        many, said = [
            (size, "{}"), (_number(graph, "Min", size, 3), "min({},3)"),
            (_number(graph, "Div", _number(graph, "Add", size, 1), 2), "({}+1)/2"),
        ][graph.rng.integers(3)]  # fmt: skip
        values, places = (f"{kind}{len(graph.nodes)}" for kind in ("values", "places"))
        largest = int(graph.rng.integers(2))
        graph.nodes.append(helper.make_node("TopK", [name, many], [values, places], axis=axis, largest=largest))
        graph.values.append((values, _with(dims, axis, said.format(dims[axis]))))


def gather_by_size(graph: Graph) -> None:
    """Read the last row, the one in the middle, or the first, counted from the end."""
    found = graph.pick(lambda dims: len(dims) > 1 and _is_open(dims))
    if found is not None:
        name, dims = found
        axis = _open_axis(graph, dims)
        size = _size(graph, name, axis)
        kind = graph.rng.integers(3)
        place = _number(graph, ("Sub", "Div", "Mul")[kind], size, (1, 2, -1)[kind])
        graph.add("Gather", [name, place], _with(dims, axis, 1), axis=axis)


def slice_by_size(graph: Graph) -> None:
    """Take the rows before the middle or behind it, or as many as another tensor has."""
    found = graph.pick(_is_open)
    if found is not None:
        name, dims = found
        axis = _open_axis(graph, dims)
        other, others = graph.pick(_is_open) or found
        at = _open_axis(graph, others)
        half = _number(graph, "Div", _size(graph, name, axis), 2)
        start, end, said = [
            (graph.integers(0), half, f"{dims[axis]}/2"), (half, graph.integers(_EVERY), f"({dims[axis]}+1)/2"),
            (graph.integers(0), _size(graph, other, at), f"min({dims[axis]},{others[at]})"),
        ][graph.rng.integers(3)]  # fmt: skip
        graph.add("Slice", [name, start, end, graph.integers(axis)], _with(dims, axis, said))


def split_by_size(graph: Graph) -> None:
    """Put a third of the rows behind the others."""
    found = graph.pick(_is_open)
    if found is not None:
        name, dims = found
        axis = _open_axis(graph, dims)
        size = _size(graph, name, axis)
        third = _number(graph, "Div", size, 3)
        rest, sizes = (f"{kind}{len(graph.nodes)}" for kind in ("rest", "sizes"))
        parts = [f"part{len(graph.nodes)}_{number}" for number in range(2)]
        graph.nodes.append(helper.make_node("Sub", [size, third], [rest]))
        graph.nodes.append(helper.make_node("Concat", [third, rest], [sizes], axis=0))
        graph.nodes.append(helper.make_node("Split", [name, sizes], parts, axis=axis))
        graph.add("Concat", parts[::-1], dims, axis=axis)


def pad_by_size(graph: Graph) -> None:
    """Fill an axis up to a multiple of 4."""
    found = graph.pick(_is_open)
    if found is not None:
        name, dims = found
        axis = _open_axis(graph, dims)
        missing = _number(graph, "Mod", _number(graph, "Mul", _size(graph, name, axis), -1), 4)
        before, behind = (graph.integers(*[0] * many) for many in (len(dims) + axis, len(dims) - axis - 1))
        pads = f"pads{len(graph.nodes)}"
        graph.nodes.append(helper.make_node("Concat", [before, missing, behind], [pads], axis=0))
        graph.add("Pad", [name, pads], _with(dims, axis, f"({dims[axis]}+3)/4*4"))


def convolve_by_run(graph: Graph) -> None:
    """Add a convolution along the length by weights of the run, in one group or two, or the other way round."""
    fits = graph.pick(lambda dims: len(dims) == 3 and isinstance(dims[1], str) and dims[2] in (4, 8, 24))
    if fits is not None and isinstance(fits[1][2], int):
        name, (batch, length, width) = fits
        turned = graph.add("Transpose", [name], (batch, width, length), perm=[0, 2, 1])
        bounded = graph.add("Tanh", [turned], (batch, width, length))
        sums = graph.add("ReduceSum", [bounded, graph.integers(0, 2)], (1, width, 1), keepdims=1)
        scales = graph.add("Sigmoid", [sums], (1, width, 1))
        groups, operator = int(graph.rng.choice([1, 2])), str(graph.rng.choice(["Conv", "ConvTranspose"]))
        if operator == "Conv":
            scales = graph.add("Slice", [scales, graph.integers(0), graph.integers(width // groups), graph.integers(1)],
                               (1, width // groups, 1))  # fmt: skip
            weight, kernel = graph.normal(8, width // groups, 3), (8, width // groups, 3)
            made = (batch, 8, length)
        else:
            scales = graph.add("Transpose", [scales], (width, 1, 1), perm=[1, 0, 2])
            weight, kernel = graph.normal(width, 8 // groups, 3), (width, 8 // groups, 3)
            made = (batch, 8, length)
        weights = graph.add("Mul", [weight, scales], kernel)
        result = graph.add(operator, [turned, weights], made, group=groups, pads=[1, 1])
        graph.add("Transpose", [result], (batch, length, 8), perm=[0, 2, 1])


def _number(graph: Graph, operator: str, size: str, number: int) -> str:
    """Return the name of what is computed of a size and a number."""
    made = f"number{len(graph.nodes)}"
    graph.nodes.append(helper.make_node(operator, [size, graph.integers(number)], [made]))
    return made


def _size(graph: Graph, name: str, axis: int) -> str:
    size = f"size{len(graph.nodes)}"
    graph.nodes.append(helper.make_node("Shape", [name], [size], start=axis, end=axis + 1))
    return size


def _scalar(graph: Graph, name: str, axis: int) -> str:
    size, scalar = _size(graph, name, axis), f"scalar{len(graph.nodes)}"
    graph.nodes.append(helper.make_node("Squeeze", [size], [scalar]))
    return scalar


def _shape(graph: Graph, name: str) -> str:
    shape = f"shape{len(graph.nodes)}"
    graph.nodes.append(helper.make_node("Shape", [name], [shape]))
    return shape


OPEN_STEPS: tuple[Callable[[Graph], None], ...] = (
    slice_open, softmax_open, norm_open, instance_norm, reduce_open, product_open, place_of_largest, concat_open,
    token_before, gather_constant, expand_like, where, mask_places, triangle, running_sum, split, pad, window_along,
    pool_all, repeat, flatten, scale_by_length, remember, contract, turn, best, best_of_open, gather_by_size,
    slice_by_size, split_by_size, pad_by_size, convolve_by_run,
)  # fmt: skip
