"""The inputs and outputs of a graph as `TensorSpec`s."""

from __future__ import annotations

import onnx

from fusion.frontends.imported import TensorSpec
from fusion.frontends.onnx.types import dims_of, type_name

# Since this version of the format, the value of a weight that is an input may be another in each call.
_OVERRIDES = 4
# What exporters write into a dimension that has no name; two of these need not be equal.
_NAMELESS = frozenset({"", "?", "unk", "None"})


def true_inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """Return the inputs a caller must give: before IR version 4, weights are listed as inputs too."""
    weights = {tensor.name for tensor in graph.initializer} | {
        tensor.values.name for tensor in graph.sparse_initializer
    }
    return [value for value in graph.input if value.name not in weights]


def overridable_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Return the inputs that a caller need not give, as they have a weight; in older files these are weights only."""
    given = {value.name for value in true_inputs(model.graph)}
    return [value for value in model.graph.input if value.name not in given] if model.ir_version >= _OVERRIDES else []


def spec_of(name: str, kind: onnx.TypeProto) -> TensorSpec:
    """Return the spec of a value called `name` of type `kind`."""
    shape = dims_of(kind) if kind.WhichOneof("value") == "tensor_type" else None
    axes = tuple(map(name_of_dim, kind.tensor_type.shape.dim)) if shape else ()
    return TensorSpec(name, shape, type_name(kind), axes if any(axes) else ())


def name_of_dim(dim: onnx.TensorShapeProto.Dimension) -> str:
    """Return the name of a dimension; "" where it has none, or an exporter wrote that it has none."""
    return "" if dim.dim_param in _NAMELESS else str(dim.dim_param)


def read_specs(graph: onnx.GraphProto) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Return inputs and outputs as declared."""
    inputs = tuple(spec_of(value.name, value.type) for value in true_inputs(graph))
    return inputs, tuple(spec_of(value.name, value.type) for value in graph.output)
