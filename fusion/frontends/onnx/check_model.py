"""Asks onnx's checker of a model. What it says against one that ONNX Runtime takes is a note, not an error."""

from __future__ import annotations

from collections.abc import Callable

import onnx
from onnx import checker

from backends.registry import model_runner
from fusion.errors import FusionError, InvalidModelError, UnsupportedOperatorError
from fusion.foreign_files import CHECK
from fusion.frontends.onnx.infer import schema_of
from fusion.frontends.onnx.names import not_text
from fusion.frontends.onnx.parts import nodes

# Operators of ONNX's domain that ONNX Runtime has in every set, and onnx in none or only in newer ones.
_OF_ONNX_RUNTIME = frozenset(
    {
        "Affine",
        "Crop",
        "DynamicSlice",
        "GRUUnit",
        "GivenTensorFill",
        "ImageScaler",
        "LayerNormalization",
        "MeanVarianceNormalization",
        "ParametricSoftplus",
        "Scale",
        "ScaledTanh",
        "SimplifiedLayerNormalization",
        "ThresholdedRelu",
    }
)
# Since this version of the format, weights need not be inputs.
_FREE_WEIGHTS = 4
# The checker says nothing of nodes of such a domain.
_UNKNOWN = "com.microsoft"


def check_model(model: onnx.ModelProto, whole: Callable[[], onnx.ModelProto]) -> tuple[str, ...]:
    """Return what onnx's checker says against `model`, as notes: ONNX Runtime takes it, with all its data, as `whole`
    returns it.

    Raises:
        InvalidModelError: ONNX Runtime refuses it too: a value is undefined, or a node breaks its operator's rules.
        UnsupportedOperatorError: A standard domain has no such operator.
    """
    try:
        checker.check_model(_skeleton(model))
    except checker.ValidationError as error:
        complaint = _explain(error)
        if model_runner().refusal_of(whole()):
            raise complaint from error
        return (f"onnx's checker says: {' '.join(f'{complaint.why} {complaint.where}'.split())}",)
    except UnicodeDecodeError as error:  # of a complaint that names it
        raise not_text(error.object[max(error.start - 8, 0) : error.end + 8]) from error
    return ()


def _skeleton(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return `model` with weights of no elements, which the check neither copies nor needs, and with some shape
    everywhere.

    The checker refuses values whose rank is not declared, which exporters leave out where they do not know it; and, by
    the version of the format, weights that are no inputs and versions of operators.
    """
    version = max(model.ir_version, _FREE_WEIGHTS)
    skeleton = onnx.ModelProto(ir_version=version, opset_import=model.opset_import, functions=model.functions)
    graph = skeleton.graph
    graph.name = model.graph.name or "graph"
    graph.node.extend(model.graph.node)
    graph.input.extend(model.graph.input)
    graph.output.extend(model.graph.output)
    for value in (*graph.input, *graph.output):
        if value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape"):
            value.type.tensor_type.shape.CopyFrom(onnx.TensorShapeProto())
    weights = [(tensor.name, tensor.data_type) for tensor in model.graph.initializer]
    weights += [(sparse.values.name, sparse.values.data_type) for sparse in model.graph.sparse_initializer]
    graph.initializer.extend(onnx.TensorProto(name=name, data_type=dtype, dims=[0]) for name, dtype in weights)
    _set_apart(skeleton)
    return skeleton


def _set_apart(skeleton: onnx.ModelProto) -> None:
    """Put the nodes of operators that only ONNX Runtime defines into a domain of which the checker knows nothing."""
    versions = {entry.domain: entry.version for entry in skeleton.opset_import}
    for node in nodes(skeleton):
        if node.domain == "" and node.op_type in _OF_ONNX_RUNTIME and schema_of(node, versions.get("", 1)) is None:
            node.domain = _UNKNOWN
            if _UNKNOWN not in versions:
                versions[_UNKNOWN] = 1
                skeleton.opset_import.add(domain=_UNKNOWN, version=1)


def _explain(error: checker.ValidationError) -> FusionError:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    cause = lines[0] if lines else ""
    where = " ".join(line.removeprefix("==> Context: ") for line in lines[1:])
    if "No Op registered for" in cause:
        return UnsupportedOperatorError(
            "the model uses an operator that ONNX does not define",
            where=where,
            why=cause,
            hint="import the operator as a model-local function, or rename its domain",
        )
    return InvalidModelError("the model breaks ONNX's rules", where=where, why=cause, hint=CHECK)
