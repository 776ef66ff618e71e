"""Frames of an STFT are checked by nodes before it: ONNX Runtime divides by their length, which ends the process at 0.

Kernels have checks of their own; these are for what ONNX Runtime runs by itself: bodies of loops and branches, whole
models.
"""

from __future__ import annotations

from collections.abc import Iterator

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper

_STEP, _WINDOW, _LENGTH = 1, 2, 3
"""Inputs of STFT; the window's size is the length where that is left out."""


def check_frames(model: ModelProto) -> ModelProto:
    """Return `model`, in which each STFT fails where its frames have no element."""
    if not any(_is_stft(node) for graph in _graphs(model.graph) for node in graph.node):
        return model
    copy = ModelProto()
    copy.CopyFrom(model)
    for number, graph in enumerate(_graphs(copy.graph)):
        nodes = [made for at, node in enumerate(graph.node) for made in _checked(node, f"frames_{number}_{at}")]
        del graph.node[:]
        graph.node.extend(nodes)
    return copy


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from _graphs(attribute.g)


def _is_stft(node: NodeProto) -> bool:
    return node.op_type == "STFT" and not node.domain


def _checked(node: NodeProto, name: str) -> list[NodeProto]:
    """`STFT(..., length)`  ->  `STFT(..., [length][int(length <= 0)])`, an index that is outside where it is 1."""
    if not _is_stft(node):
        return [node]
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
    stft = NodeProto()
    stft.CopyFrom(node)
    del stft.input[:]
    stft.input.extend([*given[:_LENGTH], checked])
    return [*nodes, stft]
