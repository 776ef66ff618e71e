"""Operands at which ONNX Runtime ends the process are checked by nodes before theirs: it divides by the length of an
STFT's frames, and reads the first element of a OneHot's depth when it loads a model, be there one or not.

Kernels have checks of their own; these are for what ONNX Runtime runs by itself: bodies of loops and branches, whole
models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper

_STEP, _WINDOW, _LENGTH = 1, 2, 3
"""Inputs of STFT; the window's size is the length where that is left out."""
_DEPTH = 1
"""Input of OneHot."""


def check_operands(model: ModelProto) -> ModelProto:
    """Return `model`, in which each STFT fails where its frames have no element, and each OneHot where its depth is not
    one number."""
    if not any(_checker(node) for graph in graphs(model.graph) for node in graph.node):
        return model
    copy = ModelProto()
    copy.CopyFrom(model)
    for number, graph in enumerate(graphs(copy.graph)):
        nodes = [made for at, node in enumerate(graph.node) for made in _checked(node, f"checked_{number}_{at}")]
        del graph.node[:]
        graph.node.extend(nodes)
    return copy


def graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """Return `graph` and those in it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from graphs(attribute.g)


def _checker(node: NodeProto) -> Callable[[NodeProto, str], list[NodeProto]] | None:
    return None if node.domain else _CHECKERS.get(node.op_type)


def _checked(node: NodeProto, name: str) -> list[NodeProto]:
    check = _checker(node)
    return [node] if check is None else check(node, name)


def _frames(node: NodeProto, name: str) -> list[NodeProto]:
    """`STFT(..., length)`  ->  `STFT(..., [length][int(length <= 0)])`, an index that is outside where it is 1."""
    given = [*node.input, "", ""][: _LENGTH + 1]
    nodes: list[NodeProto] = []

    def add(operator: str, *inputs: str, **attributes: object) -> str:
        output = f"{name}_{len(nodes)}"
        title = f"{name}: frame_length of STFT {node.name!r} must be 1 or more" if operator == "Gather" else ""
        nodes.append(helper.make_node(operator, list(inputs), [output], title, **attributes))
        return output

    if not given[_LENGTH] and not given[_WINDOW]:
        return [node]
    length = given[_LENGTH] or add("CastLike", add("Size", given[_WINDOW]), given[_STEP])
    zero = add("Constant", value=helper.make_tensor("zero", TensorProto.INT64, [], [0]))
    one = add("Constant", value=helper.make_tensor("one", TensorProto.INT64, [1], [1]))
    is_none = add("LessOrEqual", add("Cast", length, to=TensorProto.INT64), zero)
    checked = add("Gather", add("Reshape", length, one), add("Cast", is_none, to=TensorProto.INT64))
    return [*nodes, reading(node, [*given[:_LENGTH], checked])]


def _depth(node: NodeProto, name: str) -> list[NodeProto]:
    """`OneHot(i, depth, v)`  ->  `OneHot(i, Reshape(depth, [1]), v)`, of which nothing is known when it is loaded."""
    if len(node.input) <= _DEPTH or not node.input[_DEPTH]:
        return [node]
    one = helper.make_tensor("one", TensorProto.INT64, [1], [1])
    row = helper.make_node("Constant", [], [f"{name}_row"], value=one)
    title = f"{name}: the depth of OneHot {node.name!r} must be one number"
    reshape = helper.make_node("Reshape", [node.input[_DEPTH], f"{name}_row"], [f"{name}_depth"], title)
    return [row, reshape, reading(node, [node.input[0], f"{name}_depth", *node.input[_DEPTH + 1 :]])]


def reading(node: NodeProto, inputs: list[str]) -> NodeProto:
    """Return `node` with other `inputs`."""
    copy = NodeProto()
    copy.CopyFrom(node)
    copy.input[:] = inputs
    return copy


_CHECKERS = {"STFT": _frames, "OneHot": _depth}
