"""Makes an ONNX model acceptable to ONNX Runtime, which supports neither the newest operator sets nor file versions."""

from __future__ import annotations

import onnx
from onnx import version_converter

from backends.onnxruntime.check_operands import check_operands
from backends.onnxruntime.check_sizes import check_sizes
from backends.onnxruntime.fallback import open_session
from fusion.errors import UnsupportedOperatorError

# What onnxruntime 1.31 announces as supported.
MAX_OPSET = 26
MAX_IR_VERSION = 13
# Set 22 gave many operators bfloat16 and so a new version, for which onnxruntime 1.31 has no kernels; the older does
# the same.
_OLDER_OPSET = 21


def prepare(model: onnx.ModelProto) -> bytes:
    """Return `model` as bytes that ONNX Runtime opens, and runs without ending the process.

    Raises:
        UnsupportedOperatorError: ONNX Runtime lacks an operator or its type.
    """
    model = check_sizes(check_operands(model))
    try:
        return _openable(_lower_opset(model, MAX_OPSET))
    except UnsupportedOperatorError as refusal:
        if _version(model) <= _OLDER_OPSET:
            raise
        try:
            return _openable(_lower_opset(model, _OLDER_OPSET))
        except UnsupportedOperatorError:
            raise refusal from None


def refusal_of(model: onnx.ModelProto) -> str:
    """Return why ONNX Runtime refuses `model`, or "" where it takes it. Nothing of it is computed."""
    try:
        lower = _lower_opset(check_sizes(check_operands(model)), MAX_OPSET)
        lower.ir_version = min(lower.ir_version, MAX_IR_VERSION)
        open_session(lower.SerializeToString(), threads=1, optimize=False)
    except UnsupportedOperatorError as refusal:
        return refusal.why or refusal.what
    except ValueError as error:  # protobuf writes no model of 2 GB or more
        return str(error)
    return ""


def _openable(model: onnx.ModelProto) -> bytes:
    model.ir_version = min(model.ir_version, MAX_IR_VERSION)
    for node in _nodes(model.graph):
        if not node.name:  # errors of the run name nodes, of which those without a name have their result's
            node.name = next(iter(node.output), "")
    data: bytes = model.SerializeToString(deterministic=True)
    open_session(data, threads=1)
    return data


def _version(model: onnx.ModelProto) -> int:
    return next((int(o.version) for o in model.opset_import if not o.domain), 0)


def _lower_opset(model: onnx.ModelProto, target: int) -> onnx.ModelProto:
    version = _version(model)
    if version <= target:
        return _with_opset(model, version)
    newer = sorted({node.op_type for node in _nodes(model.graph) if _since(node, version) > target})
    if not newer:
        # No operator of the model changed since: the same nodes mean the same under the older set.
        return _with_opset(model, target)
    try:
        return version_converter.convert_version(model, target)
    except Exception as error:  # the converter raises bare RuntimeErrors of several kinds
        raise UnsupportedOperatorError(
            f"ONNX Runtime does not know {', '.join(newer)} of operator set {version}",
            why=str(error).split("\n")[0][:200],
            hint=f"export the model with operator set {target} or older",
        ) from error


def _with_opset(model: onnx.ModelProto, version: int) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for entry in copy.opset_import:
        if not entry.domain:
            entry.version = version
    return copy


def _nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    inner = [attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g")]
    return [*graph.node, *(node for subgraph in inner for node in _nodes(subgraph))]


def _since(node: onnx.NodeProto, version: int) -> int:
    if node.domain or not onnx.defs.has(node.op_type, version, ""):
        return 0
    return int(onnx.defs.get_schema(node.op_type, version, "").since_version)
