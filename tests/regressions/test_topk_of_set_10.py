"""TopK of operator set 10, whose k is an operand that only the run knows: it was once taken for 1."""

from __future__ import annotations

import numpy as np
import onnx.parser

import fusion


def test_k_is_what_the_run_says() -> None:
    model = onnx.parser.parse_model(
        """
        <ir_version: 5, opset_import: ["": 10]>
        graph (float[4] x, int64[1] k) => (float[n] y, int64[n] places) { y, places = TopK <axis = 0> (x, k) }
        """
    )
    results = fusion.compile(model).run({"x": np.array([1, 4, 2, 3], np.float32), "k": np.array([2])})
    np.testing.assert_array_equal(results["y"], [4, 3])
    np.testing.assert_array_equal(results["places"], [1, 3])
