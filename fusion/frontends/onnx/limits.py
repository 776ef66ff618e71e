"""Refuses, before anything is computed, a model that claims more than it holds or would grow beyond what can be
compiled."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import onnx
from onnx import FunctionProto, GraphProto, NodeProto, TensorProto, TypeProto

from fusion.errors import InvalidModelError, LimitError
from fusion.frontends.onnx.parts import bodies, graphs_of, sparse_tensors, tensors
from fusion.frontends.onnx.types import element_bytes, known_dims
from fusion.system.memory import check_memory

MOST_NODES = 100_000
"""Nodes of a model once its functions stand where they are called: ten times the largest model known, and about two
minutes of compiling."""
_DEEPEST_CALLS = 200
"""Functions within each other: onnx puts them in place by a recursion in C++."""
_DATA_TYPES = frozenset(TensorProto.DataType.values()) - {TensorProto.UNDEFINED}
_Function = tuple[str, str, str]


def check_limits(model: onnx.ModelProto) -> None:
    """Raise if a tensor or a type of `model` is impossible, or does not fit the memory of this process.

    Raises:
        InvalidModelError: A tensor's data does not fill its shape, or an element type is none.
        LimitError: A sparse tensor has too many elements.
    """
    for tensor in tensors(model):
        _check_tensor(tensor)
    for sparse in sparse_tensors(model):
        check_memory(sparse.dims, element_bytes(sparse.values.data_type), f"sparse tensor {sparse.values.name!r}")
    for body in bodies(model):
        if isinstance(body, GraphProto):
            for value in (*body.input, *body.output, *body.value_info):
                _check_type(value.type, value.name)
    for value in model.graph.input:
        if value.type.WhichOneof("value") == "tensor_type":
            _check_element(value.type.tensor_type.elem_type, f"input {value.name!r}")


def check_types(types: Mapping[str, TypeProto], node: NodeProto) -> None:
    """Raise if a tensor that `node` makes, of the types by name, does not fit the memory of this process.

    Raises:
        LimitError: One does not.
    """
    for name, kind in types.items():
        shape = known_dims(kind)
        if shape is not None:
            check_memory(shape, element_bytes(kind.tensor_type.elem_type), f"{node.op_type} {node.name or name!r}")


def _check_tensor(tensor: TensorProto) -> None:
    _check_element(tensor.data_type, f"tensor {tensor.name!r}")
    # Of raw data protobuf tells the length only by copying it: what reads it compares the two.
    counted = tensor.data_location != TensorProto.EXTERNAL and not tensor.HasField("raw_data")
    fields = (
        tensor.float_data, tensor.int32_data, tensor.int64_data, tensor.double_data, tensor.uint64_data,
        tensor.string_data,
    )  # fmt: skip
    held = sum(len(field) for field in fields)
    # Of the smallest types four elements lie in a byte.
    if min(tensor.dims, default=0) < 0 or (counted and math.prod(tensor.dims) > 4 * held):
        raise InvalidModelError(
            f"the data of tensor {tensor.name!r} does not fill its shape",
            where=tensor.name,
            why=f"the shape is {tuple(tensor.dims)}, and there are {held} numbers",
            hint="export the model again",
        )


def _check_type(kind: TypeProto, where: str) -> None:
    which = kind.WhichOneof("value")
    if which in ("tensor_type", "sparse_tensor_type"):
        element = getattr(kind, which).elem_type
        if element != TensorProto.UNDEFINED:  # which inference finds
            _check_element(element, where)
    elif which in ("sequence_type", "optional_type"):
        _check_type(getattr(kind, which).elem_type, where)
    elif which == "map_type":
        _check_element(kind.map_type.key_type, where)
        _check_type(kind.map_type.value_type, where)


def _check_element(data_type: int, where: str) -> None:
    if data_type not in _DATA_TYPES:
        raise InvalidModelError(
            f"element type {data_type} is none that ONNX has", where=where, hint="export the model again"
        )


def check_nodes(model: onnx.ModelProto) -> None:
    """Raise if `model` has too many nodes once every call of a function is its body; they are counted, not made.

    Raises:
        InvalidModelError: Functions call each other in a circle.
        LimitError: There are too many, or too many functions within each other.
    """
    functions = {_key(function): function for function in model.functions}
    sizes: dict[_Function, _Size] = {}
    for key in functions:
        _measure(key, functions, sizes)
    total = _size_of(model.graph, sizes).nodes
    if total > MOST_NODES:
        raise LimitError(
            f"the model has {total:,} nodes, its functions put in place, and fusion compiles up to {MOST_NODES:,}",
            where=f"graph {model.graph.name!r}",
            hint="compile it in parts",
        )


class _Size(NamedTuple):
    """How many nodes a function has with all that it calls in place, and how many functions within each other."""

    nodes: int
    depth: int


_NODE = _Size(1, 0)


def _measure(key: _Function, functions: dict[_Function, FunctionProto], sizes: dict[_Function, _Size]) -> None:
    """Put the size of the function `key` and of all that it calls into `sizes`."""
    path = [key]
    while path:
        current = path[-1]
        called = (_called(node) for node in _nodes(functions[current]))
        missing = next((call for call in called if call in functions and call not in sizes), None)
        if missing is None:
            sizes[current] = _size_of(functions[current], sizes)
            path.pop()
        elif missing in path:
            raise InvalidModelError(f"function {missing[1]!r} calls itself", hint="ONNX has no recursion")
        else:
            path.append(missing)
        depth = max(len(path), sizes[current].depth if current in sizes else 0)
        if depth > _DEEPEST_CALLS:
            raise LimitError(
                f"more than {_DEEPEST_CALLS} functions call each other in turn", where=f"function {key[1]!r}"
            )


def _size_of(body: GraphProto | FunctionProto, sizes: dict[_Function, _Size]) -> _Size:
    inner = [sizes.get(_called(node), _NODE) for node in _nodes(body)]
    return _Size(sum(size.nodes for size in inner), 1 + max((size.depth for size in inner), default=0))


def _nodes(body: GraphProto | FunctionProto) -> Iterator[NodeProto]:
    """Yield the nodes of `body` and of the graphs within them."""
    waiting: list[GraphProto | FunctionProto] = [body]
    while waiting:
        for node in waiting.pop().node:
            yield node
            waiting.extend(graph for attribute in node.attribute for graph in graphs_of(attribute))


def _key(function: FunctionProto) -> _Function:
    return function.domain, function.name, function.overload


def _called(node: NodeProto) -> _Function:
    return node.domain, node.op_type, node.overload
