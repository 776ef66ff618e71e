"""Compare one random graph with ONNX Runtime by the project's float64 gate."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime

import fusion
from bench import gate
from bench.reference import evaluate
from bench.reference.evaluate import NoReferenceError
from tests.random_graphs.generate import make_graph


def differences(seed: int, path: Path) -> list[str]:
    """Return what is wrong with fusion's outputs for the graph of `seed`, which is written to `path`."""
    model = make_graph(seed)
    onnx.save(model, path)
    rng = np.random.default_rng(seed)
    inputs = {
        value.name: rng.standard_normal([dim.dim_value for dim in value.type.tensor_type.shape.dim]).astype(np.float32)
        for value in model.graph.input
    }
    names = [output.name for output in model.graph.output]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    base = dict(zip(names, session.run(names, inputs), strict=True))
    made = fusion.compile(model, threads=1 + seed % 2).run(inputs)
    try:
        kind, reference = "float64", evaluate(path, inputs)
    except NoReferenceError:
        kind, reference = "onnxruntime", base
    verdict = gate.Verdict(reference=kind, baseline="onnxruntime")
    gate.judge(verdict, made, base, reference)
    return list(verdict.reasons)
