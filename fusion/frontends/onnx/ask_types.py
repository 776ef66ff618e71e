"""Types of what operators return that onnx does not know: ONNX Runtime, which will run them, tells."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import onnx
from onnx import NodeProto, TensorProto, TypeProto, ValueInfoProto
from onnx.helper import make_graph, make_model, make_opsetid, make_tensor_type_proto

from backends.registry import model_runner
from fusion.frontends.onnx.scope import ValueScope

_FORMAT = 8
"""A version of the format that every ONNX Runtime in use knows."""
_MOST_ELEMENTS = 1024
"""Of a constant that may tell the type of a result, such as a shape. Of others ONNX Runtime gets the types."""
_TOTAL = 6
"""The operand of GroupQueryAttention that says how many keys there are."""
_ELEMENTS = dict(TensorProto.DataType.items())
# ONNX Runtime's names of element types that are not onnx's.
_NAMES = {"float": "FLOAT", "double": "DOUBLE"}


def ask_types(node: NodeProto, scope: ValueScope, domains: Mapping[str, int]) -> dict[str, TypeProto]:
    """Return the type of each output of `node` that is a tensor; nothing where ONNX Runtime does not take the node."""
    names = [name for name in dict.fromkeys(node.input) if name]
    if any(name not in scope.types for name in names):
        return {}
    small = [name for name in names if name in scope.constants and _is_small(scope.constants[name])]
    given = [onnx.helper.make_value_info(name, scope.types[name]) for name in names if name not in small]
    weights = [_renamed(scope.constants[name], name) for name in small]
    results = [ValueInfoProto(name=name) for name in node.output if name]
    opsets = [make_opsetid(domain, version) for domain, version in domains.items()]
    model = make_model(make_graph([node], "types", given, results, weights), opset_imports=opsets, ir_version=_FORMAT)
    found = model_runner().output_types(model)
    guessed = _guessed(node, scope)
    kinds = {name: _type(text, () if name in guessed else shape) for name, (text, shape) in found.items()}
    return {name: kind for name, kind in kinds.items() if kind is not None}


def _guessed(node: NodeProto, scope: ValueScope) -> Sequence[str]:
    """Return the results of whose shapes ONNX Runtime tells something else than they have: of a cache that grows it
    says that it stays as it is, where only the run knows how many keys there are."""
    is_known = node.op_type != "GroupQueryAttention" or node.input[_TOTAL] in scope.constants
    return () if is_known else list(node.output[1:3])


def _is_small(tensor: TensorProto) -> bool:
    return bool(math.prod(tensor.dims) <= _MOST_ELEMENTS)


def _type(text: str, shape: Sequence[int | str | None]) -> TypeProto | None:
    """Return the type that ONNX Runtime writes as `text`, "tensor(float)"; None for other types than tensors."""
    inner = text.removeprefix("tensor(").removesuffix(")")
    name = _NAMES.get(inner, inner.upper())
    if not text.startswith("tensor(") or name not in _ELEMENTS:
        return None
    # It tells no rank of 0 from one that it does not know.
    dims = [dim if isinstance(dim, int) else None for dim in shape] or None
    return make_tensor_type_proto(_ELEMENTS[name], dims)


def _renamed(tensor: TensorProto, name: str) -> TensorProto:
    copy = TensorProto()
    copy.CopyFrom(tensor)
    copy.name = name
    return copy
