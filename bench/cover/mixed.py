"""A model for which mixing wins: `python -m bench.cover.mixed` compiles it with a measured placement and says where.

ONNX Runtime is faster at a transposed convolution into one channel, our kernels at the mean across channels before it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import fusion

_CHANNELS, _SIZE = 24, 160


def mixed_model() -> onnx.ModelProto:
    """Return x[1, 24, 160, 160] -> y[1, 1, 320, 320]."""
    rng = np.random.default_rng(0)
    weights = (rng.standard_normal((_CHANNELS, 1, 2, 2)) * 0.1).astype(np.float32)
    nodes = [
        helper.make_node("LRN", ["x"], ["a"], size=5),
        helper.make_node("ConvTranspose", ["a", "w"], ["y"], strides=[2, 2]),
    ]
    graph = helper.make_graph(
        nodes,
        "mixed",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, _CHANNELS, _SIZE, _SIZE])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, 2 * _SIZE, 2 * _SIZE])],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main() -> None:
    """Compile the model, and print its report."""
    with tempfile.TemporaryDirectory() as folder:
        backends = ["onnxruntime", "cpu"]
        records = Path(folder) / "records"
        module = fusion.compile(
            mixed_model(), backends=backends, effort="balanced", threads=1, cache=False, database=records
        )
    print(module.explain())


if __name__ == "__main__":
    main()
