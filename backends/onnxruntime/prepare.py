"""Makes an ONNX model acceptable to ONNX Runtime, which supports neither the newest operator sets nor file versions."""

from __future__ import annotations

import onnx
from onnx import version_converter

from backends.onnxruntime.fallback import open_session
from fusion.errors import UnsupportedOperatorError

# What onnxruntime 1.31 announces as supported.
MAX_OPSET = 26
MAX_IR_VERSION = 13


def prepare(model: onnx.ModelProto) -> bytes:
    """Return `model` as bytes that ONNX Runtime opens.

    Raises:
        UnsupportedOperatorError: ONNX Runtime lacks an operator or its type.
    """
    adapted = _lower_opset(model)
    adapted.ir_version = min(adapted.ir_version, MAX_IR_VERSION)
    data: bytes = adapted.SerializeToString(deterministic=True)
    open_session(data, threads=1)
    return data


def _lower_opset(model: onnx.ModelProto) -> onnx.ModelProto:
    version = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
    if version <= MAX_OPSET:
        return model
    needed = max((_since(node, version) for node in _nodes(model.graph)), default=1)
    if needed <= MAX_OPSET:
        # No operator of the model changed since: the same nodes mean the same under the older set.
        return _with_opset(model, MAX_OPSET)
    try:
        return version_converter.convert_version(model, MAX_OPSET)
    except Exception as error:  # the converter raises bare RuntimeErrors of several kinds
        names = sorted({node.op_type for node in _nodes(model.graph) if _since(node, version) > MAX_OPSET})
        raise UnsupportedOperatorError(
            f"ONNX Runtime does not know {', '.join(names)} of operator set {version}", why=str(error).split("\n")[0][:200],
            hint=f"export the model with operator set {MAX_OPSET} or older") from error


def _with_opset(model: onnx.ModelProto, version: int) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for entry in copy.opset_import:
        if entry.domain in ("", "ai.onnx"):
            entry.version = version
    return copy


def _nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    inner = [attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g")]
    return [*graph.node, *(node for subgraph in inner for node in _nodes(subgraph))]


def _since(node: onnx.NodeProto, version: int) -> int:
    if node.domain not in ("", "ai.onnx"):
        return 0
    return int(onnx.defs.get_schema(node.op_type, version, "").since_version)
