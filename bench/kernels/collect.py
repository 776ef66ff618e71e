"""Finds the operators of the zoo worth a kernel of their own, each shape once; not those inside branches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import prod

from onnx import NodeProto, helper

from bench import zoo
from bench.kernels.case import Case
from bench.kernels.graph import OnnxGraph, trace
from bench.kernels.single import Single, extract


def collect(models: Iterable[str]) -> list[Case]:
    """Return the cases of these zoo models, those of one family together, the largest first."""
    found: dict[bytes, Single] = {}
    used: dict[bytes, Counter[str]] = {}
    for name in models:
        model = zoo.make(name)
        graph = trace(model.path, model.inputs(seed=0))
        for family, nodes, flops in operators(graph):
            single = extract(graph, nodes, family, flops)
            found.setdefault(single.key, single)
            used.setdefault(single.key, Counter())[name] += 1
    cases = [single.case(dict(used[key])) for key, single in found.items()]
    return sorted(_numbered(cases), key=lambda case: (case.family, -case.flops, -case.bytes))


def _numbered(cases: Sequence[Case]) -> Iterator[Case]:
    """Tell cases apart that differ only in attributes a name does not show."""
    seen: Counter[str] = Counter()
    for case in cases:
        seen[case.name] += 1
        suffix = f" #{seen[case.name]}" if seen[case.name] > 1 else ""
        yield Case(
            name=case.name + suffix,
            family=case.family,
            model=case.model,
            inputs=case.inputs,
            flops=case.flops,
            bytes=case.bytes,
            used=case.used,
        )


def operators(graph: OnnxGraph) -> Iterator[tuple[str, list[NodeProto], int]]:
    """Yield the family, the nodes and the operations of each operator of interest that computes in float32."""
    for node in graph.nodes:
        family = _family(graph, node)
        if family:
            yield family, [node], _flops(graph, node)
        if node.op_type == "Softmax":
            attention = _attention(graph, node)
            if attention:
                yield "attention", attention, sum(_flops(graph, part) for part in attention)


_FAMILIES = {
    "MatMul": "matmul",
    "Gemm": "matmul",
    "ConvTranspose": "conv-transpose",
    "LayerNormalization": "normalisation",
    "BatchNormalization": "normalisation",
    "Softmax": "softmax",
    "MaxPool": "pooling",
    "AveragePool": "pooling",
    "GlobalAveragePool": "pooling",
}


def _family(graph: OnnxGraph, node: NodeProto) -> str:
    shape, dtype = graph.values.get(node.output[0], ((), None))
    if dtype != "float32" or node.output[0] in graph.constants:
        return ""
    if node.op_type != "Conv":
        return _FAMILIES.get(node.op_type, "")
    groups = _attribute(node, "group", 1)
    if groups == 1:
        return "conv"
    return "depthwise" if groups == shape[1] else "grouped conv"


def _flops(graph: OnnxGraph, node: NodeProto) -> int:
    """Return the operations of a product; 0 for any other operator."""
    if node.op_type not in ("MatMul", "Gemm", "Conv", "ConvTranspose"):
        return 0
    first, second = (graph.values[name][0] for name in node.input[:2])
    if node.op_type == "ConvTranspose":  # every input element meets every weight of its channel
        return 2 * prod(first) * prod(second[1:])
    output = prod(graph.values[node.output[0]][0])
    if node.op_type == "Conv":
        return 2 * output * prod(second[1:])
    return 2 * output * first[0 if _attribute(node, "transA", 0) else -1]


def _attribute(node: NodeProto, name: str, default: int) -> int:
    return next((int(helper.get_attribute_value(a)) for a in node.attribute if a.name == name), default)


# What may stand between the softmax and its matmuls: scaling, masking and, in vit_s, casts.
_BETWEEN = frozenset({"Mul", "Div", "Add", "Where", "Cast"})


def _attention(graph: OnnxGraph, softmax: NodeProto) -> list[NodeProto]:
    """Return the nodes from the scores' matmul to the one behind `softmax`, in order; empty where there is none, or
    where one of them does not compute in float32."""
    before, behind = _from_matmul(graph, softmax), _to_matmul(graph, softmax)
    found = [*before, *behind] if before and behind else []
    return found if all(graph.values[part.output[0]][1] == "float32" for part in found) else []


def _from_matmul(graph: OnnxGraph, node: NodeProto) -> list[NodeProto]:
    """Return the nodes from a matmul to `node`, each read by the next alone; empty where no such chain leads there."""
    if node.op_type == "MatMul":
        return [node]
    for name in node.input:
        part = graph.producer.get(name)
        if part is not None and part.op_type in (*_BETWEEN, "MatMul") and graph.readers.get(name, 0) == 1:
            before = _from_matmul(graph, part)
            if before:
                return [*before, node]
    return []


def _to_matmul(graph: OnnxGraph, node: NodeProto) -> list[NodeProto]:
    """Return the nodes behind `node` up to a matmul, each the only reader of the one before; empty without a matmul."""
    readers = [part for part in graph.nodes if node.output[0] in part.input]
    if [part.op_type for part in readers] == ["MatMul"]:
        return readers
    if len(readers) != 1 or readers[0].op_type not in _BETWEEN:
        return []
    behind = _to_matmul(graph, readers[0])
    return [*readers, *behind] if behind else []
