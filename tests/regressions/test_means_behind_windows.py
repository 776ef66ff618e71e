"""Means over images that windows made smaller, all their sizes open: what they divide by was taken for another size
that happened to fit."""

from __future__ import annotations

import numpy as np
from onnx import helper

import fusion
from tests.frontends.against_onnxruntime import onnxruntime_runs
from tests.module.small_models import FLOAT, model


def test_means_divide_by_the_pixels_of_the_call() -> None:
    rng = np.random.default_rng(0)
    held = {"k": rng.standard_normal((8, 3, 3, 2)).astype(np.float32)}
    held |= {"ones": np.ones(8, np.float32), "zeros": np.zeros(8, np.float32)}
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"]),
        helper.make_node("GlobalAveragePool", ["c"], ["pixels"]),
        helper.make_node("ReduceMean", ["c"], ["images"], axes=[0, 2, 3]),
        helper.make_node("ReduceMean", ["c"], ["channels"], axes=[1, 2, 3]),
        helper.make_node("InstanceNormalization", ["c", "ones", "zeros"], ["normal"]),
    ]
    outputs = [(name, FLOAT, None) for name in ("pixels", "images", "channels", "normal")]
    proto = model(nodes, [("x", FLOAT, ["n", 3, "h", "w"])], outputs, held)
    module = fusion.compile(proto, threads=1, wait=True)
    for shape in ((2, 3, 40, 50), (2, 3, 20, 20), (1, 3, 64, 19), (5, 3, 33, 47)):
        x = rng.standard_normal(shape).astype(np.float32) + 1
        for ours, theirs in zip(module(x), onnxruntime_runs(proto, {"x": x}), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    assert module.specializations[0].inputs[0].shape == (None, 3, None, None)
