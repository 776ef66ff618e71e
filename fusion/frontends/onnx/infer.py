"""Types of a node's outputs from the types and constant values of its inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
import onnx
from onnx import TensorProto, TypeProto, numpy_helper, shape_inference

from fusion.errors import InvalidModelError
from fusion.frontends.onnx.alike import Findings
from fusion.frontends.onnx.checks.dims import text
from fusion.frontends.onnx.infer_elementwise import infer_elementwise
from fusion.frontends.onnx.node import attribute_of
from fusion.frontends.onnx.pool_windows import pool_types
from fusion.frontends.onnx.scope import ValueScope
from fusion.frontends.onnx.types import dims_of, dtype_name, known_dims, type_name
from fusion.frontends.onnx.windows import convolution_type

_MOST_PLACES = 2**62

# Shape computations read only small integer tensors; handing weights to the inference would copy them.
_MAX_DATA_ELEMENTS = 1024

CONTRADICTION = "ShapeInferenceError"
"""Of onnx's reasons: what those have in them that speak of shapes."""


class InferenceError(Exception):
    """ONNX's inference refuses a node, as ONNX Runtime then does when it loads it; the text is ONNX's reason."""


def schema_of(node: onnx.NodeProto, opset: int) -> onnx.defs.OpSchema | None:
    """Return the schema of `node`'s operator, or None for a domain that onnx does not know."""
    try:
        return _schema(node.op_type, opset, node.domain)
    except onnx.defs.SchemaError:
        return None


@lru_cache(maxsize=1024)
def _schema(op: str, opset: int, domain: str) -> onnx.defs.OpSchema:
    """Return the schema of an operator, of which onnx makes a copy each time.

    Raises:
        onnx.defs.SchemaError: There is none. It is asked for again then, as programs may register it later.
    """
    return onnx.defs.get_schema(op, opset, domain)


def infer_types(
    node: onnx.NodeProto,
    opset: int,
    scope: ValueScope,
    declared: dict[str, TypeProto],
    findings: Findings | None = None,
) -> dict[str, TypeProto]:
    """Return the type of each output of `node` that inference or the model's own declaration tells.

    Inference comes first, or what `findings` of nodes like it say, to which it is added. A shape that only the
    declaration tells is entered in `scope.claimed`, and in `scope.unsure` whatever rests on one.

    Raises:
        InferenceError: The attributes and inputs of `node` contradict each other.
        InvalidModelError: These are of different element types.
    """
    inferred: Mapping[str, TypeProto] = {}
    findings = findings or Findings()
    if not findings.types:
        inferred = infer_elementwise(node, opset, scope) or convolution_type(node, scope)
        inferred = inferred or _inferred(node, opset, scope)
        findings.keep(node, inferred)
    rests = not scope.unsure.isdisjoint(node.input)
    if findings.types:
        scope.unsure.update(node.output if rests else ())
        return _none_declared_otherwise(dict(zip(node.output, findings.types, strict=True)), declared)
    found: dict[str, TypeProto] = {}
    for name in node.output:
        own, claim = (_with_value(kinds.get(name)) for kinds in (inferred, declared))
        _refuse_other_element(name, [kind for kind in (own, claim) if kind is not None])
        claimed = known_dims(own) is None and _may_be(own, claim)
        kind = claim if claimed else own
        if kind is None:
            continue
        found[name] = kind
        if kind is claim:  # converters say more of it, and the model stays as it is
            found[name] = TypeProto()
            found[name].CopyFrom(kind)
        if claimed and known_dims(kind) is not None:
            scope.claimed.add(name)
        if rests or name in scope.claimed:
            scope.unsure.add(name)
    return found


def _none_declared_otherwise(types: dict[str, TypeProto], declared: Mapping[str, TypeProto]) -> dict[str, TypeProto]:
    """Return `types`, which say all that there is, if what the model declares has the same element types."""
    for name, kind in types.items():
        claim = _with_value(declared.get(name))
        if claim is not None:
            _refuse_other_element(name, [kind, claim])
    return types


def _inferred(node: onnx.NodeProto, opset: int, scope: ValueScope) -> dict[str, TypeProto]:
    """Return what onnx's inference tells, or ONNX Runtime does otherwise; the types are nobody else's."""
    inferred = _infer(node, opset, scope) | pool_types(node, scope) | _places_in_a_scalar(node, scope)
    inferred |= _resized(node, opset, scope) | _taken_of_a_row(node, scope)
    return _of_the_variables(node, opset, scope, inferred)


def _places_in_a_scalar(node: onnx.NodeProto, scope: ValueScope) -> dict[str, TypeProto]:
    """Return the type of NonZero's result for a scalar: ONNX Runtime takes it for a row of one element, onnx says that
    its places have no axes."""
    kind = scope.types.get(node.input[0]) if node.op_type == "NonZero" and not node.domain else None
    if kind is None or dims_of(kind) != ():
        return {}
    return {node.output[0]: onnx.helper.make_tensor_type_proto(TensorProto.INT64, [1, None])}


def _taken_of_a_row(node: onnx.NodeProto, scope: ValueScope) -> dict[str, TypeProto]:
    """Return the type of what ArrayFeatureExtractor takes of a tensor of one axis, as scikit-learn's classifiers take
    labels: a row, of which onnx's inference tells no shape."""
    if (node.op_type, node.domain) != ("ArrayFeatureExtractor", "ai.onnx.ml"):
        return {}
    row, places = (scope.types.get(name) for name in node.input)
    sizes = None if row is None or places is None else dims_of(places)
    if row is None or sizes is None or len(dims_of(row) or ()) != 1:
        return {}
    count = None if None in sizes else math.prod(size for size in sizes if size is not None)
    return {node.output[0]: onnx.helper.make_tensor_type_proto(row.tensor_type.elem_type, [1, count])}


def _resized(node: onnx.NodeProto, opset: int, scope: ValueScope) -> dict[str, TypeProto]:
    """Return the type of what a `Resize` or `Upsample` by scales makes, of as many places as ONNX Runtime says, which
    multiplies sizes by them in float32: 21 for 0.7 of 30, where onnx's inference rounds down 20.9999996."""
    kind = scope.types.get(node.input[0]) if node.op_type in ("Resize", "Upsample") and not node.domain else None
    given = _scales(node, opset, scope) if kind is not None else None
    sizes = None if kind is None else known_dims(kind)
    if kind is None or given is None or sizes is None:
        return {}
    axes = [int(axis) % len(sizes) for axis in attribute_of(node, "axes") or range(len(sizes))]
    if len(axes) != len(given):
        return {}
    made = np.array(sizes, np.float32)
    made[axes] *= np.array(given, np.float32)
    if not ((made >= 0) & (made < _MOST_PLACES)).all():
        return {}  # it is refused
    places = made.astype(np.int64).tolist()
    return {node.output[0]: onnx.helper.make_tensor_type_proto(kind.tensor_type.elem_type, places)}


def _scales(node: onnx.NodeProto, opset: int, scope: ValueScope) -> Sequence[float] | None:
    """Return the scales that are known before the run; None where there are none, as where sizes are given."""
    at = 1 if node.op_type == "Upsample" or opset < 11 else 2
    name = node.input[at] if len(node.input) > at else ""
    if name:
        return numpy_helper.to_array(scope.constants[name]).reshape(-1) if name in scope.constants else None
    found: Sequence[float] | None = attribute_of(node, "scales")
    return found


def _of_the_variables(
    node: onnx.NodeProto, opset: int, scope: ValueScope, inferred: Mapping[str, TypeProto]
) -> dict[str, TypeProto]:
    """Return `inferred` with the element types that the definition binds to those of inputs: of RMSNormalization onnx's
    inference tells that of the other input, or nothing."""
    kinds = dict(inferred)
    known = schema_of(node, opset) is not None
    for output, index in _bound_outputs(node.op_type, opset, node.domain) if known else ():
        name = node.output[output] if output < len(node.output) else ""
        bound = scope.types.get(node.input[index]) if index < len(node.input) else None
        element = 0 if bound is None else bound.tensor_type.elem_type
        if name and element:
            kind = TypeProto()
            kind.CopyFrom(kinds.get(name, kind))
            kind.tensor_type.elem_type = element
            kinds[name] = kind
    return kinds


@lru_cache(maxsize=1024)
def _bound_outputs(op: str, opset: int, domain: str) -> tuple[tuple[int, int], ...]:
    """Return outputs and inputs that share a type variable, but that of the first input.

    Raises:
        onnx.defs.SchemaError: The operator has no schema.
    """
    schema = _schema(op, opset, domain)
    variadic = onnx.defs.OpSchema.FormalParameterOption.Variadic
    inputs = [formal.type_str for formal in schema.inputs if formal.option != variadic]
    bound = ((at, formal.type_str) for at, formal in enumerate(schema.outputs) if formal.option != variadic)
    return tuple((at, inputs.index(name)) for at, name in bound if name in inputs[1:] and name != inputs[0])


def _refuse_other_element(name: str, kinds: Sequence[TypeProto]) -> None:
    elements = {kind.tensor_type.elem_type for kind in kinds} - {TensorProto.UNDEFINED}
    if len(elements) > 1 and all(kind.HasField("tensor_type") for kind in kinds):
        found, declared = (dtype_name(kind.tensor_type.elem_type) for kind in kinds)
        raise InvalidModelError(
            f"{name!r} is declared as {declared} and computed as {found}",
            where=name,
            hint="correct the declaration, or convert the value with a Cast",
        )


def _with_value(kind: TypeProto | None) -> TypeProto | None:
    return kind if kind is not None and kind.WhichOneof("value") else None


def _may_be(inferred: TypeProto | None, declared: TypeProto | None) -> bool:
    """Return whether what the model declares of a value says more than inference, and nothing else."""
    if declared is None or inferred is None:
        return declared is not None
    if known_dims(declared) is None or inferred.tensor_type.elem_type not in (0, declared.tensor_type.elem_type):
        return False
    known, claim = dims_of(inferred), dims_of(declared) or ()
    return known is None or (
        len(known) == len(claim) and all(size in (None, other) for size, other in zip(known, claim, strict=True))
    )


def _infer(node: onnx.NodeProto, opset: int, scope: ValueScope) -> dict[str, TypeProto]:
    schema = schema_of(node, opset)
    has_graph = any(attribute.HasField("g") for attribute in node.attribute)
    names = [name for name in node.input if name]
    if schema is None or any(name not in scope.types for name in names):
        return {}
    types = scope.types if has_graph else {name: scope.types[name] for name in names}
    data = {
        name: scope.constants[name] for name in names if name in scope.constants and _is_small(scope.constants[name])
    }
    opsets = [onnx.helper.make_opsetid(node.domain, opset)]
    try:
        return dict(shape_inference.infer_node_outputs(schema, node, types, data, opset_imports=opsets))
    except MemoryError:
        raise
    except shape_inference.InferenceError as error:
        if has_graph:  # what is wrong may lie in a branch that never runs
            return {}
        given = ", ".join(_described(scope.types[name]) for name in names)
        raise InferenceError(f"{' '.join(str(error).split())}; the inputs are {given}") from error
    except Exception:  # onnx raises errors of several kinds, and its converters of numpy's arrays more
        return {}


def _described(kind: TypeProto) -> str:
    dims = dims_of(kind) if kind.HasField("tensor_type") else None
    return type_name(kind) if dims is None else f"{type_name(kind)}{text(dims)}"


def _is_small(tensor: TensorProto) -> bool:
    return bool(math.prod(tensor.dims) <= _MAX_DATA_ELEMENTS)
