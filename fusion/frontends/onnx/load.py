"""Reads an ONNX model and refuses what is not one: garbage, escaping external data, cycles, unknown operators."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import checker

from fusion.errors import FusionError, InvalidModelError, ModelFileError, UnsupportedOperatorError
from fusion.files import read_file
from fusion.frontends.onnx.external_data import read_external_data, refuse_external_data
from fusion.frontends.onnx.foreign import CHECK, describe
from fusion.frontends.onnx.limits import check_limits
from fusion.frontends.onnx.sort_nodes import sort_nodes

# Of ONNX's own domain, which has two names.
_NEWEST_OPSET = onnx.defs.onnx_opset_version()


def load_model(source: Path | onnx.ModelProto, *, weights: bool = True) -> onnx.ModelProto:
    """Return the model at or in `source`, its external data read in if `weights`.

    Raises:
        ModelFileError: The file is no ONNX model, or its external data is missing, too short, or outside its folder.
        InvalidModelError: The model has no nodes and no outputs, or a tensor or a type is impossible.
        LimitError: It is larger than this process can hold, or fusion compiles.
        UnsupportedOperatorError: Its operator set is newer than the installed onnx.
    """
    if isinstance(source, onnx.ModelProto):
        model = source
        refuse_external_data(model)
    else:
        model = _load_file(source, weights)
    check_limits(model)
    if not model.graph.output:
        raise InvalidModelError("the model's graph is empty: it has no outputs", hint=CHECK)
    _check_opset(model)
    return model


def _check_opset(model: onnx.ModelProto) -> None:
    for opset in model.opset_import:
        if opset.domain in ("", "ai.onnx") and opset.version > _NEWEST_OPSET:
            raise UnsupportedOperatorError(
                f"the model uses operator set {opset.version}, and the newest that onnx {onnx.__version__} knows is "
                f"{_NEWEST_OPSET}",
                hint=f"install a newer onnx, or export the model with operator set {_NEWEST_OPSET} or older",
            )


def _load_file(path: Path, weights: bool) -> onnx.ModelProto:
    form = onnx.serialization.registry.get_format_from_file_extension(path.suffix) or "protobuf"
    try:
        model = onnx.load_model_from_string(read_file(path), form)
    except Exception as error:  # each of the formats has errors of its own
        raise _not_onnx(path, _last_line(error)) from error
    if not model.HasField("graph") or not model.ir_version:
        raise _not_onnx(path, "it holds no graph or no format version")
    if weights:
        read_external_data(model, path)
    return model


def _not_onnx(path: Path, why: str) -> ModelFileError:
    kind, hint = describe(path)
    if kind:
        return ModelFileError(f"{path.name} is {kind}, not an ONNX model", where=str(path), hint=hint)
    return ModelFileError(f"{path.name} is not an ONNX model, or is cut short", where=str(path), why=why, hint=hint)


def check_model(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return `model` with its nodes in topological order after onnx's own checks.

    Raises:
        InvalidModelError: The graph is cyclic, a value is undefined, or a node breaks its operator's rules.
        UnsupportedOperatorError: A standard domain has no such operator.
    """
    model = sort_nodes(model)
    try:
        checker.check_model(_skeleton(model))
    except checker.ValidationError as error:
        raise _explain(error) from error
    return model


def _skeleton(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return `model` with weights of no elements, which the check neither copies nor needs, and with some shape
    everywhere.

    The checker refuses values whose rank is not declared, which exporters leave out where they do not know it.
    """
    skeleton = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions)
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
    return skeleton


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


def _last_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]
