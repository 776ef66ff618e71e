"""A load that is turned in registers was not known again where a reshape, of a convolution of one dimension, puts its
positions through a remainder: it was read element by element, and LLVM refused it where lanes were idle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import fusion

CHANNELS, FILTERS = 32, 16


def _conv1d(batch: str | int, kernel: int, **attributes: object) -> onnx.ModelProto:
    groups = int(str(attributes.get("group", 1)))
    shape = (FILTERS, CHANNELS // groups, kernel)
    weights = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], **attributes)
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, (batch, CHANNELS, "length"))
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "conv1d", [given], [made], [numpy_helper.from_array(weights, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


@pytest.mark.parametrize(
    ("batch", "kernel", "attributes"),
    [
        (2, 3, {"pads": [1, 1]}),
        ("batch", 3, {"pads": [1, 1]}),
        ("batch", 5, {"pads": [2, 2], "strides": [2]}),
        ("batch", 3, {"pads": [2, 2], "dilations": [2]}),
        (2, 3, {"pads": [1, 1], "group": 2}),
    ],
)
def test_convolutions_of_any_length(
    batch: str | int, kernel: int, attributes: dict[str, object], tmp_path: Path
) -> None:
    path = tmp_path / "conv1d.onnx"
    onnx.save(_conv1d(batch, kernel, **attributes), path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    compiled = fusion.compile(path, wait=True, cache=False, threads=2)
    random = np.random.default_rng(1)
    for images, length in ((2, 20), (2, 1), (2, 3), (2, 16), (2, 17), (2, 100), (3, 33), (1, 47)):
        images = images if batch == "batch" else 2
        data = random.standard_normal((images, CHANNELS, length), dtype=np.float32)
        (expected,) = session.run(None, {"x": data})
        np.testing.assert_allclose(compiled(data)[0], expected, rtol=1e-4, atol=1e-4)
    assert "no form for all sizes" not in compiled.explain()
