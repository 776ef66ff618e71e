"""Valid models of one node, and data to run them with: ONNX's own node tests, and operators of older sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# ONNX Runtime has kernels for few operators of newer sets.
OPSET = 21
# Sequences, strings, training and what holds graphs: ONNX Runtime runs them, and checks them itself.
_SKIPPED = frozenset(
    {"Loop", "Scan", "If", "Adagrad", "Adam", "Momentum", "Gradient", "ImageDecoder", "StringSplit", "SplitToSequence"}
)
# How many variants of an operator to begin from.
_PER_OPERATOR = 2


@dataclass(frozen=True)
class Seed:
    """A model of one node without declared shapes of its results, and values for all that it reads.

    Attributes:
        node: It; its inputs that are not "" are keys of `values`.
        opset: The operator set of its domain.
        values: By name; those in `constants` are initializers, the others are inputs.
        constants: Names.
    """

    node: onnx.NodeProto
    opset: int
    values: dict[str, np.ndarray]
    constants: frozenset[str]

    @property
    def name(self) -> str:
        return f"{self.node.op_type}-{self.opset}"


def model_of(seed: Seed, kinds: Sequence[int] = ()) -> onnx.ModelProto:
    """Return the model; its outputs have the dtypes `kinds` and no shape."""
    read = [name for name in dict.fromkeys(seed.node.input) if name]
    inputs = [
        helper.make_tensor_value_info(name, _element(seed.values[name]), seed.values[name].shape)
        for name in read
        if name not in seed.constants
    ]
    weights = [numpy_helper.from_array(seed.values[name], name) for name in read if name in seed.constants]
    written = (name for name in seed.node.output if name)
    outputs = [
        helper.make_tensor_value_info(name, kind, None) if kind else onnx.ValueInfoProto(name=name)
        for name, kind in zip_longest(written, kinds)
    ]
    graph = helper.make_graph([seed.node], "limits", inputs, outputs, weights)
    domains = {"": OPSET, seed.node.domain: seed.opset}
    opsets = [helper.make_opsetid(domain, version) for domain, version in domains.items()]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _element(array: np.ndarray) -> int:
    return int(helper.np_dtype_to_tensor_dtype(array.dtype))


def seeds() -> Iterator[Seed]:
    """Yield valid nodes, each once with what shapes its result as inputs and once as constants."""
    for seed in (*_node_tests(), *_older()):
        yield seed
        small = frozenset(
            name
            for index, name in enumerate(seed.node.input)
            if index and name and seed.values[name].dtype.kind in "iu" and seed.values[name].size <= 16
        )
        if small:
            yield Seed(seed.node, seed.opset, seed.values, small)


def _node_tests() -> Iterator[Seed]:
    from tests.onnx_nodes.cases import load_cases

    seen: Counter[tuple[str, int]] = Counter()
    for case in load_cases().values():
        graph = case.model.graph
        if len(graph.node) != 1 or not case.data_sets or graph.node[0].op_type in _SKIPPED:
            continue
        node = graph.node[0]
        names = (value.name for value in graph.input)
        values = {
            name: np.asarray(value) if isinstance(value, np.generic) else value
            for name, value in zip(names, case.data_sets[0][0], strict=True)
        }
        if not all(isinstance(value, np.ndarray) and value.dtype.kind in "fiub" for value in values.values()):
            continue
        versions = {entry.domain: entry.version for entry in case.model.opset_import}
        opset = versions.get(node.domain, 1)
        key = node.op_type, len(node.attribute)
        seen[key] += 1
        if seen[key] > _PER_OPERATOR or sum(value.size for value in values.values()) > 100_000:
            continue
        values |= {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        yield Seed(node, _opset(node, opset), values, frozenset())


def _opset(node: onnx.NodeProto, opset: int) -> int:
    if node.domain or onnx.defs.get_schema(node.op_type, opset).since_version <= OPSET:
        return opset if node.domain else min(opset, OPSET)
    schema_at_older = onnx.defs.has(node.op_type, OPSET, "")
    return OPSET if schema_at_older else opset


def _older() -> Iterator[Seed]:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for op, opset, operands, attributes in _OLDER:
        names = ["x", *(f"i{index}" for index in range(len(operands)))]
        image = x[:, :1] if op == "Squeeze" else x
        values = dict(zip(names, (image, *map(np.asarray, operands)), strict=True))
        outputs = ["y", "z"] if op in ("Split", "TopK") else ["y"]
        yield Seed(helper.make_node(op, names, outputs, **attributes), opset, values, frozenset())


# What newer sets made an input was an attribute; the image of all is x[2, 3, 4].
_OLDER: tuple[tuple[str, int, tuple[np.ndarray, ...], dict[str, object]], ...] = (
    ("Squeeze", 11, (), {"axes": [1]}),
    ("Unsqueeze", 11, (), {"axes": [0]}),
    ("ReduceSum", 11, (), {"axes": [1]}),
    ("ReduceMax", 11, (), {"axes": [1], "keepdims": 0}),
    ("ReduceMean", 13, (), {"axes": [1]}),
    ("Softmax", 11, (), {"axis": 1}),
    ("LogSoftmax", 11, (), {"axis": 1}),
    ("Hardmax", 11, (), {"axis": 1}),
    ("Split", 11, (), {"axis": 2, "split": [1, 3]}),
    ("Slice", 9, (), {"axes": [0, 1], "starts": [0, 1], "ends": [1, 3]}),
    ("Pad", 2, (), {"mode": "constant", "pads": [0, 1, 0, 0, 0, 1]}),
    ("Upsample", 7, (), {"mode": "nearest", "scales": [1.0, 1.0, 2.0]}),
    ("TopK", 1, (), {"axis": 1, "k": 2}),
    ("Flatten", 9, (), {"axis": 1}),
    ("Concat", 4, (np.zeros((2, 3, 4), np.float32),), {"axis": 1}),
    ("Gather", 1, (np.array([0, 1]),), {"axis": 1}),
    ("ArgMax", 11, (), {"axis": 1, "keepdims": 0}),
    ("Dropout", 7, (), {"ratio": 0.5}),
    ("Clip", 6, (), {"min": 0.0, "max": 4.0}),
    ("Cast", 9, (), {"to": TensorProto.INT64}),
)
