"""Random ONNX models of which some sizes are open: each operator takes and returns tensors of these."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.symbolic.random_graph import Dims, Graph

Step = Callable[[Graph], None]
BATCH, LENGTH, OTHER, BOTH = "batch", "length", "other", "both"
WIDTH = 8
"""Of the last dimension at the beginning."""

OPENED: tuple[dict[str, int | str], ...] = (
    {BATCH: "batch", LENGTH: "length", OTHER: "other"},
    {BATCH: "n", LENGTH: "n", OTHER: "n"},
    {BATCH: 3, LENGTH: "length", OTHER: "other"},
    {BATCH: "batch", LENGTH: 5, OTHER: "other"},
    {BATCH: "batch", LENGTH: "length", OTHER: "length"},
)
"""What models declare of their sizes: symbols, of which several may be one, or numbers."""


def random_symbols(seed: int) -> dict[str, int | str]:
    """Return what the model of a seed declares."""
    return OPENED[np.random.default_rng((seed, 1)).integers(len(OPENED))]


def random_model(
    seed: int, steps: int = 6, symbols: Mapping[str, int | str] | None = None, drawn: Sequence[Step] | None = None
) -> onnx.ModelProto:
    """Return the model of a seed; its outputs are the last tensors that nothing reads.

    Args:
        drawn: What it consists of; None for what all sizes have one form of.
        symbols: What it declares of its sizes, one of `OPENED` where it has a second input, of another length; None
            for one input of any batch and length.
    """
    graph = Graph(np.random.default_rng(seed))
    graph.values.append(("x", (BATCH, LENGTH, WIDTH)))
    if symbols is not None:
        graph.values.append(("y", (BATCH, OTHER, WIDTH)))
        (_across if graph.rng.integers(2) else _behind)(graph)
    is_one = all(dims[1] != BOTH for _, dims in graph.values)
    taken = [step for step in drawn or STEPS if is_one or step is not _positions]
    while len(graph.nodes) < steps:
        taken[graph.rng.integers(len(taken))](graph)
    read = {name for node in graph.nodes for name in node.input}
    outputs = [(name, dims) for name, dims in graph.values if name not in read and name not in ("x", "y")][-3:]
    declared = symbols or {BATCH: BATCH, LENGTH: LENGTH}
    inputs = [(name, dims) for name, dims in graph.values if name in ("x", "y")]
    made = helper.make_graph(
        graph.nodes,
        f"random{seed}",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [declared.get(dim, dim) for dim in dims])
            for name, dims in inputs
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * len(dims)) for name, dims in outputs],
        graph.weights,
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def _unary(graph: Graph) -> None:
    name, dims = graph.pick() or graph.values[0]
    graph.add(str(graph.rng.choice(["Relu", "Tanh", "Sigmoid", "Neg"])), [name], dims)


def _binary(graph: Graph) -> None:
    first = graph.pick() or graph.values[0]
    second = graph.pick(lambda dims: dims == first[1]) or first
    graph.add(str(graph.rng.choice(["Add", "Mul", "Sub"])), [first[0], second[0]], first[1])


def _bias(graph: Graph) -> None:
    found = graph.pick(lambda dims: isinstance(dims[-1], int))
    if found is not None and isinstance(found[1][-1], int):
        graph.add("Add", [found[0], graph.normal(found[1][-1])], found[1])


def _product(graph: Graph) -> None:
    found = graph.pick(lambda dims: isinstance(dims[-1], int) and len(dims) > 1)
    if found is not None and isinstance(found[1][-1], int):
        width = int(graph.rng.choice([1, 4, 8, 16, 24]))
        graph.add("MatMul", [found[0], graph.normal(found[1][-1], width)], (*found[1][:-1], width))


def _softmax(graph: Graph) -> None:
    found = graph.pick(lambda dims: len(dims) > 1)
    if found is not None:
        graph.add("Softmax", [found[0]], found[1], axis=-1)


def _norm(graph: Graph) -> None:
    found = graph.pick(lambda dims: isinstance(dims[-1], int) and dims[-1] > 1)
    if found is not None and isinstance(found[1][-1], int):
        scale, bias = graph.normal(found[1][-1]), graph.normal(found[1][-1])
        graph.add("LayerNormalization", [found[0], scale, bias], found[1], axis=-1)


def _transpose(graph: Graph) -> None:
    found = graph.pick(lambda dims: len(dims) > 2)
    if found is not None:
        axes = [0, *(1 + graph.rng.permutation(len(found[1]) - 1))]
        graph.add("Transpose", [found[0]], tuple(found[1][axis] for axis in axes), perm=[int(axis) for axis in axes])


def _attend(graph: Graph) -> None:
    found = graph.pick(lambda dims: len(dims) == 3 and dims[1] == LENGTH and isinstance(dims[2], int))
    if found is not None:
        name, (batch, length, width) = found
        turned = graph.add("Transpose", [name], (batch, width, length), perm=[0, 2, 1])
        scores = graph.add("MatMul", [name, turned], (batch, length, length))
        weights = graph.add("Softmax", [scores], (batch, length, length), axis=-1)
        graph.add("MatMul", [weights, name], (batch, length, width))


def _mean(graph: Graph) -> None:
    found = graph.pick(lambda dims: len(dims) > 1 and isinstance(dims[-1], int))
    if found is not None:
        graph.add("ReduceMean", [found[0]], (*found[1][:-1], 1), axes=[-1], keepdims=1)


def _sum(graph: Graph) -> None:
    found = graph.pick(lambda dims: len(dims) == 3 and dims[1] in (LENGTH, BOTH))
    if found is not None:
        name, (batch, _, width) = found
        shares = graph.add("Tanh", [name], found[1])
        graph.add("ReduceSum", [shares, graph.integers(1)], (batch, width), keepdims=0)


def _concat(graph: Graph) -> None:
    found = graph.pick(lambda dims: len(dims) == 3 and isinstance(dims[2], int))
    if found is not None and isinstance(found[1][2], int):
        rows = found[1][:2]
        other = graph.pick(lambda dims: len(dims) == 3 and dims[:2] == rows and isinstance(dims[2], int)) or found
        width = found[1][2] + int(other[1][2])
        graph.add("Concat", [found[0], other[0]], (*found[1][:2], width), axis=2)


def _first(graph: Graph) -> None:
    found = graph.pick(lambda dims: len(dims) == 3 and dims[1] == LENGTH)
    if found is not None:
        at = graph.weight(np.array(0, np.int64))
        graph.add("Gather", [found[0], at], (found[1][0], found[1][2]), axis=1)


def _last(graph: Graph) -> None:
    found = graph.pick(lambda dims: len(dims) == 3 and dims[1] == LENGTH)
    if found is not None:
        at = graph.weight(np.array(-1, np.int64))
        graph.add("Gather", [found[0], at], (found[1][0], found[1][2]), axis=1)


def _gram(graph: Graph) -> None:
    """Add the products of all columns with each other, summed over the length, and what they make of the rows."""
    found = graph.pick(lambda dims: len(dims) == 3 and dims[1] == LENGTH and isinstance(dims[2], int))
    if found is not None:
        name, (batch, length, width) = found
        rows = graph.add("Sigmoid", [name], found[1])  # long sums of both signs may be anything
        turned = graph.add("Transpose", [rows], (batch, width, length), perm=[0, 2, 1])
        sums = graph.add("MatMul", [turned, rows], (batch, width, width))
        graph.add("MatMul", [rows, sums], (batch, length, width))


def _heads(graph: Graph) -> None:
    found = graph.pick(lambda dims: len(dims) == 3 and isinstance(dims[2], int) and dims[2] % 4 == 0)
    if found is not None and isinstance(found[1][2], int):
        shape = graph.integers(0, 0, 4, found[1][2] // 4)
        graph.add("Reshape", [found[0], shape], (*found[1][:2], 4, found[1][2] // 4))


def _rows(graph: Graph) -> None:
    found = graph.pick(lambda dims: len(dims) == 3 and isinstance(dims[2], int))
    if found is not None and isinstance(found[1][2], int):
        shape = graph.integers(-1, found[1][2])
        graph.add("Reshape", [found[0], shape], ("rows", found[1][2]))


def _across(graph: Graph) -> None:
    """Let the rows of one input attend to those of the other."""
    turned = graph.add("Transpose", ["y"], (BATCH, WIDTH, OTHER), perm=[0, 2, 1])
    scores = graph.add("MatMul", ["x", turned], (BATCH, LENGTH, OTHER))
    weights = graph.add("Softmax", [scores], (BATCH, LENGTH, OTHER), axis=-1)
    graph.add("MatMul", [weights, "y"], (BATCH, LENGTH, WIDTH))


def _behind(graph: Graph) -> None:
    """Put the rows of one input behind those of the other, as a cache and what is new are."""
    graph.add("Concat", ["y", "x"], (BATCH, BOTH, WIDTH), axis=1)
    if graph.rng.integers(2):
        _positions_behind(graph)


def _stack(graph: Graph) -> None:
    """Put two tensors beside each other along a new first axis, as keys and values of a cache are."""
    first = graph.pick(lambda dims: len(dims) == 3) or graph.values[0]
    second = graph.pick(lambda dims: dims == first[1]) or first
    front = graph.integers(0)
    parts = [graph.add("Unsqueeze", [name, front], (1, *dims)) for name, dims in (first, second)]
    graph.add("Concat", parts, (2, *first[1]), axis=0)


def _positions(graph: Graph) -> None:
    """Add the rows of a table of 32 positions that the length has."""
    found = graph.pick(lambda dims: len(dims) == 3 and dims[1] == LENGTH and isinstance(dims[2], int))
    if found is not None and isinstance(found[1][2], int):
        zero = graph.weight(np.array(0, np.int64))
        _add_positions(graph, found, 32, zero, _length(graph, found[0]))


def _positions_behind(graph: Graph) -> None:
    """Add to the rows of one input positions behind those of the other, of a table of 400 for both."""
    _add_positions(graph, graph.values[0], 400, _length(graph, "y"), _length(graph, graph.values[-1][0]))


def _length(graph: Graph, name: str) -> str:
    """Return the name of the second size of a tensor."""
    shape, length = (f"{kind}{len(graph.nodes)}" for kind in ("shape", "length"))
    graph.nodes.append(helper.make_node("Shape", [name], [shape]))
    graph.nodes.append(helper.make_node("Gather", [shape, graph.weight(np.array(1, np.int64))], [length], axis=0))
    return length


def _add_positions(graph: Graph, found: tuple[str, Dims], places: int, begin: str, end: str) -> None:
    """Add the rows of a new table of as many `places` from `begin` up to `end` to a tensor."""
    name, dims = found
    taken, rows = (f"{kind}{len(graph.nodes)}" for kind in ("taken", "rows"))
    one = graph.weight(np.array(1, np.int64))
    graph.nodes.append(helper.make_node("Range", [begin, end, one], [taken]))
    graph.nodes.append(helper.make_node("Gather", [graph.normal(places, int(dims[2])), taken], [rows], axis=0))
    graph.add("Add", [name, rows], dims)


STEPS: tuple[Step, ...] = (
    _unary, _binary, _bias, _product, _product, _softmax, _norm, _transpose, _attend, _mean, _sum, _concat, _first,
    _last, _gram, _heads, _rows, _stack, _positions,
)  # fmt: skip
