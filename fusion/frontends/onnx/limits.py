"""Refuses, before anything is computed, a model that claims more than it holds or would grow beyond what can be
compiled."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import onnx
from onnx import FunctionProto, GraphProto, NodeProto, TensorProto, TypeProto

from fusion.errors import InvalidModelError, LimitError
from fusion.frontends.onnx.parts import bodies, graphs_of, sparse_tensors, tensors
from fusion.memory import usable_memory

MOST_NODES = 100_000
"""Nodes of a model once its functions stand where they are called: ten times the largest model known, and about two
minutes of compiling."""
_DEEPEST_CALLS = 200
"""Functions within each other: onnx puts them in place by a recursion in C++."""
_DATA_TYPES = frozenset(TensorProto.DataType.values()) - {TensorProto.UNDEFINED}
_Function = tuple[str, str, str]


def check_limits(model: onnx.ModelProto) -> None:
    """Raise if `model` is beyond a limit, or one of its tensors or types is impossible.

    Raises:
        InvalidModelError: A tensor's data does not fill its shape, an element type is none, or functions call each
            other in a circle.
        LimitError: It has too many nodes once its functions are in place, or a sparse tensor too many elements.
    """
    for tensor in tensors(model):
        _check_tensor(tensor)
    for sparse in sparse_tensors(model):
        _check_memory(f"sparse tensor {sparse.values.name!r}", sparse.dims, sparse.values.data_type)
    for body in bodies(model):
        if isinstance(body, GraphProto):
            for value in (*body.input, *body.output, *body.value_info):
                _check_type(value.type, value.name)
    _check_nodes(model)


def check_size(where: str, shape: Iterable[int]) -> None:
    """Raise if a tensor of `shape` does not fit the memory of this process, were each element one byte.

    Raises:
        LimitError: It does not.
    """
    _check_memory(where, tuple(shape), TensorProto.UINT8)


def _check_memory(where: str, dims: Iterable[int], data_type: int) -> None:
    elements = math.prod(dims)
    size = elements * (onnx.helper.tensor_dtype_to_np_dtype(data_type).itemsize if data_type in _DATA_TYPES else 1)
    if size > usable_memory():
        raise LimitError(
            f"a tensor of {elements:,} elements does not fit the memory of this process",
            where=where,
            why=f"the shape is {tuple(dims)}, and the process may use {usable_memory():,} bytes",
            hint="check the model's sizes and constants, and shapes=",
        )


def _check_tensor(tensor: TensorProto) -> None:
    _check_element(tensor.data_type, f"tensor {tensor.name!r}")
    if tensor.data_location == TensorProto.EXTERNAL:  # not read, as only the signature is asked for
        return
    fields = (
        tensor.float_data, tensor.int32_data, tensor.int64_data, tensor.double_data, tensor.uint64_data,
        tensor.string_data,
    )  # fmt: skip
    held = len(tensor.raw_data) + sum(len(field) for field in fields)
    # Of the smallest types four elements lie in a byte.
    if min(tensor.dims, default=0) < 0 or math.prod(tensor.dims) > 4 * held:
        raise InvalidModelError(
            f"the data of tensor {tensor.name!r} does not fill its shape",
            where=tensor.name,
            why=f"the shape is {tuple(tensor.dims)}, and there are {held} bytes or numbers",
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


def _check_nodes(model: onnx.ModelProto) -> None:
    """Count the nodes that the model has once every call of a function is its body, without making them."""
    functions = {_key(function): function for function in model.functions}
    counts: dict[_Function, int] = {}
    for key in functions:
        _count_function(key, functions, counts)
    total = sum(_cost(node, counts) for node in _nodes(model.graph))
    if total > MOST_NODES:
        raise LimitError(
            f"the model has {total:,} nodes, its functions put in place, and fusion compiles up to {MOST_NODES:,}",
            where=f"graph {model.graph.name!r}",
            hint="compile it in parts",
        )


def _count_function(key: _Function, functions: dict[_Function, FunctionProto], counts: dict[_Function, int]) -> None:
    """Put the number of nodes of the function `key` and of all that it calls into `counts`."""
    path = [key]
    while path:
        current = path[-1]
        calls = [_called(node) for node in _nodes(functions[current])]
        missing = next((call for call in calls if call in functions and call not in counts), None)
        if missing is None:
            counts[current] = sum(_cost(node, counts) for node in _nodes(functions[current]))
            path.pop()
        elif missing in path:
            raise InvalidModelError(f"function {missing[1]!r} calls itself", hint="ONNX has no recursion")
        elif len(path) >= _DEEPEST_CALLS:
            raise LimitError(f"more than {_DEEPEST_CALLS} functions call each other", where=f"function {key[1]!r}")
        else:
            path.append(missing)


def _nodes(body: GraphProto | FunctionProto) -> Iterator[NodeProto]:
    """Yield the nodes of `body` and of the graphs within them."""
    waiting: list[GraphProto | FunctionProto] = [body]
    while waiting:
        for node in waiting.pop().node:
            yield node
            waiting.extend(graph for attribute in node.attribute for graph in graphs_of(attribute))


def _cost(node: NodeProto, counts: dict[_Function, int]) -> int:
    return counts.get(_called(node), 1)


def _key(function: FunctionProto) -> _Function:
    return function.domain, function.name, function.overload


def _called(node: NodeProto) -> _Function:
    return node.domain, node.op_type, node.overload
