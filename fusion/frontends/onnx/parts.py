"""The parts of an ONNX model, wherever they stand: graphs within nodes, functions, tensors within attributes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import onnx
from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, SparseTensorProto, TensorProto

Body: TypeAlias = GraphProto | FunctionProto


def bodies(model: onnx.ModelProto) -> Iterator[Body]:
    """Yield the graph of `model`, its functions, and the graphs within their nodes."""
    training = (graph for info in model.training_info for graph in (info.initialization, info.algorithm))
    waiting: list[Body] = [model.graph, *model.functions, *training]
    while waiting:
        body = waiting.pop()
        yield body
        waiting.extend(graph for attribute in _attributes(body) for graph in graphs_of(attribute))


def nodes(model: onnx.ModelProto) -> Iterator[NodeProto]:
    """Yield every node of `model`."""
    for body in bodies(model):
        yield from body.node


def graphs_of(attribute: AttributeProto) -> Iterator[GraphProto]:
    """Yield the graphs that are the value of `attribute`."""
    if attribute.HasField("g"):
        yield attribute.g
    yield from attribute.graphs


def tensors(model: onnx.ModelProto) -> Iterator[TensorProto]:
    """Yield every tensor of `model`, and of the sparse ones their values and indices."""
    for body in bodies(model):
        if isinstance(body, GraphProto):
            yield from body.initializer
        for attribute in _attributes(body):
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
    for sparse in sparse_tensors(model):
        yield sparse.values
        yield sparse.indices


def sparse_tensors(model: onnx.ModelProto) -> Iterator[SparseTensorProto]:
    """Yield every sparse tensor of `model`."""
    for body in bodies(model):
        if isinstance(body, GraphProto):
            yield from body.sparse_initializer
        for attribute in _attributes(body):
            if attribute.HasField("sparse_tensor"):
                yield attribute.sparse_tensor
            yield from attribute.sparse_tensors


def _attributes(body: Body) -> Iterator[AttributeProto]:
    for node in body.node:
        yield from node.attribute
    if isinstance(body, FunctionProto):
        yield from body.attribute_proto
