"""An activation whose alpha is NaN, infinite, zero or negative: what ONNX Runtime computes of each kind of number. Celu
of NaN, LeakyRelu of 0 and Selu of 0 once were numbers."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import onnxruntime as ort
from onnx import NodeProto, helper

import fusion
from tests.frontends.against_onnxruntime import model_of

X = np.array([-inf, -3, -0.0, 0, 2, inf, nan, -1e38], np.float32)
FACTORS = ((nan, nan), (inf, 1.0), (-inf, inf), (0.0, inf), (-0.0, 0.5), (-1.5, -2.0), (1e30, 1e20), (1e38, -inf))


def _nodes() -> list[NodeProto]:
    nodes = []
    for alpha, gamma in FACTORS:
        for op in ("LeakyRelu", "Elu", "Celu", "Selu", "ThresholdedRelu", "HardSigmoid"):
            more = {"gamma": gamma} if op == "Selu" else {}
            nodes.append(helper.make_node(op, ["x"], [f"{op}, {alpha}"], alpha=alpha, **more))
    return nodes


def test_as_onnx_runtime_has_them() -> None:
    model = model_of(16, _nodes(), {"x": X})
    expected = ort.InferenceSession(model.SerializeToString()).run(None, {"x": X})
    results = fusion.compile(model, threads=1).run({"x": X})
    for (name, found), wanted in zip(results.items(), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, err_msg=name)
