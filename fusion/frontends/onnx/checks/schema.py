"""What ONNX's definition of an operator says of any of its nodes: how many operands, which attributes, which dtypes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache

import onnx
from onnx import AttributeProto, TensorProto
from onnx.defs import OpSchema

from fusion.frontends.onnx.node import Node

_VARIADIC = OpSchema.FormalParameterOption.Variadic
_SINGLE = OpSchema.FormalParameterOption.Single
# ONNX Runtime has a definition of its own, which lets any attribute pass.
_TOLERANT = frozenset({"LayerNormalization"})


@dataclass(frozen=True)
class _Operand:
    name: str
    variable: str
    types: frozenset[str]
    needed: bool


@dataclass(frozen=True)
class _Definition:
    """An operator's definition, which onnx keeps behind calls that copy.

    Attributes:
        operands: In order; the last one stands for all further ones where `variadic`.
        attributes: The kind of each attribute, by name.
        needed: Attributes without a default.
        inputs: How few and how many inputs a node has.
        outputs: How few and how many outputs.
    """

    operands: tuple[_Operand, ...]
    alike: bool
    attributes: Mapping[str, int]
    needed: frozenset[str]
    inputs: tuple[int, int]
    outputs: tuple[int, int]


def breaches_of_the_schema(node: Node) -> Iterator[str]:
    """Yield what of `node` its operator's definition does not allow; an operator without one allows everything."""
    try:
        definition = _definition(node.proto.op_type, node.opset, node.proto.domain)
    except onnx.defs.SchemaError:
        return
    yield from _counts(node, definition)
    yield from _attributes(node, definition)
    yield from _operands(node, definition)


@lru_cache(maxsize=1024)
def _definition(op: str, opset: int, domain: str) -> _Definition:
    """Return how an operator is defined.

    Raises:
        onnx.defs.SchemaError: There is no definition. It is asked for again then, as programs may register it later.
    """
    schema = onnx.defs.get_schema(op, opset, domain)
    operands = tuple(
        _Operand(formal.name, formal.type_str, frozenset(formal.types), formal.option in (_SINGLE, _VARIADIC))
        for formal in schema.inputs
    )
    alike = bool(schema.inputs) and (schema.inputs[-1].option != _VARIADIC or schema.inputs[-1].is_homogeneous)
    attributes = {name: int(attribute.type.value) for name, attribute in schema.attributes.items()}
    needed = frozenset(name for name, attribute in schema.attributes.items() if attribute.required)
    return _Definition(
        operands=operands, alike=alike, attributes=attributes, needed=needed,
        inputs=(schema.min_input, schema.max_input), outputs=(schema.min_output, schema.max_output),
    )  # fmt: skip


def _counts(node: Node, definition: _Definition) -> Iterator[str]:
    for what, names, (low, high) in (
        ("inputs", node.proto.input, definition.inputs),
        ("outputs", node.proto.output, definition.outputs),
    ):
        if not low <= len(names) <= high:
            yield f"it has {len(names)} {what}, and {_between(low, high)} are allowed"


def _between(low: int, high: int) -> str:
    return f"{low}" if low == high else f"{low} to {high}" if high < 1 << 30 else f"{low} or more"


def _attributes(node: Node, definition: _Definition) -> Iterator[str]:
    for attribute in node.proto.attribute:
        # Those with two underscores in front are notes of tools, which ONNX Runtime reads over.
        if attribute.name not in definition.attributes:
            if not attribute.name.startswith("__") and node.op not in _TOLERANT:
                yield f"{attribute.name} is none of its attributes, which are {_names(definition.attributes)}"
        elif attribute.type != definition.attributes[attribute.name] and not attribute.ref_attr_name:
            kind, wanted = (
                AttributeProto.AttributeType.Name(number).lower()
                for number in (attribute.type, definition.attributes[attribute.name])
            )
            yield f"{attribute.name} is of type {kind}, and must be of type {wanted}"
    given = {attribute.name for attribute in node.proto.attribute}
    for name in sorted(definition.needed - given):
        yield f"{name} is missing, an attribute without a default"


def _names(attributes: Mapping[str, int]) -> str:
    return ", ".join(sorted(attributes)) or "none"


def _operands(node: Node, definition: _Definition) -> Iterator[str]:
    """Inputs are given where they are needed, of the dtypes allowed, and alike where they share a type variable."""
    bound: dict[str, str] = {}
    for index, name in enumerate(node.proto.input):
        operand = definition.operands[min(index, len(definition.operands) - 1)]
        if not name:
            if operand.needed:
                yield f"input {index} ({operand.name}) is missing"
            continue
        kind = _kind(node, name)
        if not kind:
            continue
        if kind not in operand.types:
            yield f"input {index} ({operand.name}) is {kind}, and must be one of {', '.join(sorted(operand.types))}"
        same = definition.alike or index < len(definition.operands) - 1
        if same and bound.setdefault(operand.variable, kind) != kind:
            other = bound[operand.variable]
            yield f"input {index} ({operand.name}) is {kind}, and another one of the same type is {other}"


def _kind(node: Node, name: str) -> str:
    """Return ONNX's notation of a tensor's type, "" of what is no tensor or of no known dtype."""
    kind = node.scope.types.get(name)
    if kind is None or kind.WhichOneof("value") != "tensor_type" or not kind.tensor_type.elem_type:
        return ""
    return _notation(kind.tensor_type.elem_type)


@cache
def _notation(element: int) -> str:
    return f"tensor({TensorProto.DataType.Name(element).lower()})"
