"""Takes one operator, or a short chain of them, out of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod, sqrt

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

from bench.inputs import InputSpec
from bench.kernels.case import Case
from bench.kernels.graph import OnnxGraph

_IR_VERSION = 8


@dataclass(frozen=True)
class Single:
    """An operator on its own; operators with equal keys do the same work."""

    key: bytes
    graph: onnx.GraphProto
    family: str
    opset: int
    flops: int
    bytes: int

    def case(self, used: dict[str, int]) -> Case:
        """Return the finished case."""
        model = helper.make_model(
            self.graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=_IR_VERSION
        )
        specs = tuple(_spec(value) for value in self.graph.input)
        return Case(
            name=_name(self),
            family=self.family,
            model=model,
            inputs=specs,
            flops=self.flops,
            bytes=self.bytes,
            used=used,
        )


def extract(graph: OnnxGraph, nodes: Sequence[NodeProto], family: str, flops: int) -> Single:
    """Return `nodes`, of which the last makes the one output, as a graph of its own."""
    made = [name for node in nodes for name in node.output]
    outer = [name for name in dict.fromkeys(n for node in nodes for n in node.input) if name and name not in made]
    names = {name: f"x{index}" for index, name in enumerate(outer)}
    names |= {name: f"t{index}" for index, name in enumerate(made)} | {nodes[-1].output[0]: "y", "": ""}
    inputs = [_info(graph, name, names[name]) for name in outer if name not in graph.constants]
    weights = [_weight(graph.constants[name], names[name]) for name in outer if name in graph.constants]
    output = _info(graph, nodes[-1].output[0], "y")
    single = helper.make_graph([_renamed(node, names) for node in nodes], "single", inputs, [output], weights)
    moved = sum(prod(graph.values[n][0]) * graph.values[n][1].itemsize for n in (*outer, nodes[-1].output[0]))
    return Single(
        key=single.SerializeToString(deterministic=True),
        graph=single,
        family=family,
        opset=graph.opset,
        flops=flops,
        bytes=moved,
    )


def _info(graph: OnnxGraph, name: str, new: str) -> onnx.ValueInfoProto:
    shape, dtype = graph.values[name]
    return helper.make_tensor_value_info(new, helper.np_dtype_to_tensor_dtype(dtype), shape)


def _weight(array: np.ndarray, name: str) -> onnx.TensorProto:
    """Return a constant. Bounds, sizes and axes keep their values; a weight gets random ones, the same for the same
    shape, that keep products near 1."""
    if array.size == 1 or array.dtype != np.float32:
        return numpy_helper.from_array(array, name)
    scale = sqrt(array.size / max(array.shape))
    values = np.random.default_rng(array.shape).standard_normal(array.shape) / scale
    # A variance is positive.
    return numpy_helper.from_array((np.abs(values) if array.ndim == 1 else values).astype(np.float32), name)


def _renamed(node: NodeProto, names: dict[str, str]) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    copy.name = ""
    copy.doc_string = ""
    del copy.metadata_props[:]
    copy.input[:] = [names[name] for name in node.input]
    copy.output[:] = [names[name] for name in node.output[:1]]
    return copy


def _spec(value: onnx.ValueInfoProto) -> InputSpec:
    kind = value.type.tensor_type
    shape = tuple(dim.dim_value for dim in kind.shape.dim)
    return InputSpec(value.name, shape, helper.tensor_dtype_to_np_dtype(kind.elem_type).name)


def _name(single: Single) -> str:
    """Return the family and the shapes, as "conv 1x64x56x56 64x64x3x3 stride 2"."""
    graph = single.graph
    shapes = [
        *(tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim) for value in graph.input),
        *(tuple(tensor.dims) for tensor in graph.initializer if len(tensor.dims) > 1),
    ]
    parts = [single.family, *("x".join(map(str, shape)) for shape in shapes)]
    attributes = {a.name: helper.get_attribute_value(a) for node in graph.node for a in node.attribute}
    for attribute, neutral in (("kernel_shape", None), ("strides", 1), ("dilations", 1)):
        value = attributes.get(attribute)
        shown = neutral is not None or single.family == "pooling"
        if value and shown and any(extent != neutral for extent in value):
            parts.append(f"{attribute.removesuffix('s').removesuffix('_shape')} {'x'.join(map(str, value))}")
    return " ".join(parts)
