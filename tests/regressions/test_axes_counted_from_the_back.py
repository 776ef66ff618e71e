"""Before operator set 11, axes are counted from the front; ONNX Runtime takes others too, and fusion then returned the
input as it was."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from tests.frontends.against_onnxruntime import check
from tests.module.small_models import FLOAT, model


@pytest.mark.parametrize("opset", [7, 10, 12])
def test_squeeze(opset: int) -> None:
    nodes = [
        helper.make_node("Squeeze", ["x"], ["narrow"], axes=[-2]),
        helper.make_node("Unsqueeze", ["x"], ["wide"], axes=[-2, 0]),
        helper.make_node("Unsqueeze", ["narrow"], ["again"], axes=[-1]),
    ]
    made = model(nodes, [("x", FLOAT, [2, 1, 4])], [(name, FLOAT, None) for name in ("narrow", "wide", "again")])
    made.opset_import[0].version = opset
    check(made, {"x": np.random.default_rng(0).standard_normal((2, 1, 4), dtype=np.float32)})
