"""Random models with open batch and length are what ONNX Runtime makes of them at any sizes, 0 and 1 included."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

import fusion
from tests.symbolic.random_models import WIDTH, random_model

SIZES = ((2, 5), (1, 1), (3, 17), (7, 2), (1, 30), (2, 300))


@pytest.mark.parametrize("seed", range(10))
def test_sizes_the_passes_have_not_seen(seed: int) -> None:
    model = random_model(seed)
    module = fusion.compile(model, wait=True, cache=False, threads=1 + seed % 2)
    sizes = (*SIZES, (0, 3)) if seed == 1 else SIZES  # of others without elements ONNX Runtime keeps axes it sums over
    ran = sum(_is_right(module, model.SerializeToString(), *each) for each in sizes)
    assert ran >= len(sizes) - 1  # a table of positions ends before the longest
    assert module.specializations[0].opened is not None, module.explain()


def _is_right(module: fusion.CompiledModule, model: bytes, batch: int, length: int) -> bool:
    """Compare both; return whether ONNX Runtime takes these sizes."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    x = np.random.default_rng(length).standard_normal((batch, length, WIDTH)).astype(np.float32)
    try:
        expected = onnxruntime.InferenceSession(model, options).run(None, {"x": x})
    except (ort_errors.Fail, ort_errors.InvalidArgument, ort_errors.RuntimeException):
        return False
    for result, wanted in zip(module(x), expected, strict=True):
        assert result.shape == wanted.shape
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)
    return True
