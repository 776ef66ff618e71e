"""What only the run knows and what ends ONNX Runtime's process: a frame without elements."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import fusion
from fusion.errors import ExecutionError
from tests.fuzz.engines import run_onnxruntime

MODEL = onnx.parser.parse_model(
    """
    <ir_version: 10, opset_import: ["": 23]>
    graph (float[1,11,1] x, int64 step, int64 length) => (y) { y = STFT(x, step, "", length) }
    """
)


def test_the_length_is_checked_before_onnx_runtime_reads_it() -> None:
    x = np.arange(11, dtype=np.float32).reshape(1, 11, 1)
    compiled = fusion.compile(MODEL)
    feeds = {"x": x, "step": np.array(2), "length": np.array(4)}
    np.testing.assert_allclose(compiled.run(feeds)["y"], run_onnxruntime(MODEL, feeds).values["y"], atol=1e-4)
    with pytest.raises(ExecutionError, match="frame has no element"):
        compiled.run({**feeds, "length": np.array(0)})
