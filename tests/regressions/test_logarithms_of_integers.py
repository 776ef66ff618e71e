"""ReduceLogSum of integers over no axis, which was once the integers themselves."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import fusion
from fusion.errors import FusionError
from tests.fuzz.engines import run_onnxruntime


def test_the_logarithm_of_an_integer_is_cut_off() -> None:
    model = onnx.parser.parse_model(
        """
        <ir_version: 10, opset_import: ["": 23]>
        graph (int32[3] x) => (int32[3] y) { y = ReduceLogSum <noop_with_empty_axes = 1> (x) }
        """
    )
    x = np.array([1, 5, 100], np.int32)
    results = fusion.compile(model).run({"x": x})
    np.testing.assert_array_equal(results["y"], run_onnxruntime(model, {"x": x}).values["y"])


@pytest.mark.parametrize("noop", [0, 1])
def test_the_logarithm_of_an_unsigned_scalar_is_refused(noop: int) -> None:
    head = '<ir_version: 9, opset_import: ["": 19]> graph (uint64 x) => (uint64 y)'
    text = f"{head} {{ y = ReduceLogSum<noop_with_empty_axes = {noop}>(x) }}"
    with pytest.raises(FusionError):
        fusion.compile(onnx.parser.parse_model(text))
