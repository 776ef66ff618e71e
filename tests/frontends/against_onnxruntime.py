"""Compares a model with ONNX Runtime, which is the measure of what is valid and of what comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

import fusion
from fusion import CompiledModule


def model_of(
    opset: int, nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, np.ndarray], **weights: Any
) -> onnx.ModelProto:
    """Return the model of `nodes`, all of whose results it returns."""
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in inputs.items()
    ]
    outputs = [onnx.ValueInfoProto(name=name) for node in nodes for name in node.output]
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "nodes", infos, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def onnxruntime_runs(model: onnx.ModelProto, inputs: Mapping[str, Any]) -> list[Any]:
    """Return the outputs of ONNX Runtime; its own exceptions pass."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(inputs)))


def check(
    model: onnx.ModelProto, inputs: Mapping[str, Any], *, fallbacks: Sequence[str] | None = (), tolerance: float = 1e-5
) -> CompiledModule:
    """Return `model` compiled, after its outputs for `inputs` were compared; `fallbacks` are operators for ONNX
    Runtime, None for any."""
    module = fusion.compile(model, threads=1, wait=True)
    found = module(*(inputs[spec.name] for spec in module.inputs))
    expected = onnxruntime_runs(model, inputs)
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)
    taken = [node.op for form in module.specializations for node in form.fallbacks]
    assert fallbacks is None or taken == list(fallbacks)
    return module
