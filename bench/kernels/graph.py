"""A zoo model with the shape of every value, found by running it once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import NodeProto, numpy_helper

from bench.peers.engine import Arrays


@dataclass(frozen=True)
class OnnxGraph:
    """The nodes of a model and what is known of its values.

    Attributes:
        nodes: In order of execution.
        opset: Version of the standard operators.
        constants: Values that do not depend on the inputs.
        values: Shape and dtype of every tensor.
        producer, readers: Of each value, the node that makes it and how many read it.
    """

    nodes: tuple[NodeProto, ...]
    opset: int
    constants: Mapping[str, np.ndarray]
    values: Mapping[str, tuple[tuple[int, ...], np.dtype]]
    producer: Mapping[str, NodeProto]
    readers: Mapping[str, int]


def trace(path: Path, inputs: Arrays) -> OnnxGraph:
    """Run the model at `path` on `inputs` with every value as an output, and return what was seen."""
    model = onnx.load(path)
    graph = model.graph
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    seen = {**constants, **inputs, **_run(model, inputs)}
    for node in graph.node:
        if all(name in constants for name in node.input if name) and not any(a.HasField("g") for a in node.attribute):
            constants.update({name: seen[name] for name in node.output if name in seen})
    return OnnxGraph(
        nodes=tuple(graph.node),
        opset=next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx")),
        constants=constants,
        values={name: (array.shape, array.dtype) for name, array in seen.items()},
        producer={name: node for node in graph.node for name in node.output},
        readers=Counter(name for node in graph.node for name in node.input),
    )


def _run(model: onnx.ModelProto, inputs: Arrays) -> Arrays:
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    known = {value.name for value in shown.graph.output}
    names = [name for node in shown.graph.node for name in node.output if name]
    shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in known)
    options = ort.SessionOptions()
    # An optimised graph no longer has all values.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(shown.SerializeToString(), options, providers=["CPUExecutionProvider"])
    wanted = [value.name for value in session.get_outputs()]
    return dict(zip(wanted, session.run(wanted, inputs), strict=True))
