"""Models of which the data of the run decides how much they compute."""

from __future__ import annotations

import numpy as np
from onnx import parser

import fusion


def test_rows_that_the_run_chooses() -> None:
    """What a kernel computes of as many as the run finds cannot be counted for reports: this was an internal error."""
    model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        chosen (float[batch,length,8] x, bool[length] is_kept) => (float[b,n,w] y) {
            y = Compress<axis=1>(x, is_kept)
        }""")
    module = fusion.compile(model, wait=True, cache=False, threads=1)
    for batch, length in ((2, 5), (3, 17), (1, 1), (7, 40)):
        rng = np.random.default_rng(length)
        x, is_kept = rng.random((batch, length, 8), np.float32), rng.random(length) < 0.5
        np.testing.assert_array_equal(module(x, is_kept)[0], x[:, is_kept])
    assert [form.opened is not None for form in module.specializations] == [True], module.explain()
