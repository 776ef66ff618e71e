"""Indices at their limits, for which ONNX Runtime has a result: tuples of no numbers, and places of a ring that counts
on, which were refused."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import fusion
from fusion.errors import ExecutionError
from tests.frontends.against_onnxruntime import check, onnxruntime_runs


@pytest.mark.parametrize(("batch", "shape"), [(0, "2,0"), (0, "0"), (1, "2,5,0"), (2, "2,3,0")])
def test_tuples_of_no_numbers_choose_all_of_their_batch(batch: int, shape: str) -> None:
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]> graph (float[2,3,4] x, int64[{shape}] at) => (float y)
        {{ y = GatherND <batch_dims = {batch}> (x, at) }}"""
    )
    at = np.zeros([int(size) for size in shape.split(",")], np.int64)
    check(model, {"x": np.arange(24, dtype=np.float32).reshape(2, 3, 4), "at": at})


@pytest.mark.parametrize("constant", [False, True])
def test_places_of_a_ring_are_counted_on(constant: bool) -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 11, opset_import: ["": 24]>
        graph (float[2,1,4,3] x, float[2,1,3,3] new, int64[2] at) => (float[2,1,4,3] y)
        { y = TensorScatter <mode = "circular"> (x, new, at) }"""
    )
    inputs = {"x": np.zeros((2, 1, 4, 3), np.float32), "new": np.arange(1, 19, dtype=np.float32).reshape(2, 1, 3, 3)}
    for places in ([4, 7], [2**40 + 3, 0]):
        at = np.array(places)
        if constant:
            fixed = onnx.ModelProto.FromString(model.SerializeToString())
            del fixed.graph.input[2]
            fixed.graph.initializer.append(onnx.numpy_helper.from_array(at, "at"))
            check(fixed, inputs)
        else:
            check(model, {**inputs, "at": at})
    before = {**inputs, "at": np.array([0, -1])}
    with pytest.raises(Exception, match="ONNXRuntimeError"):
        onnxruntime_runs(model, before)
    with pytest.raises(ExecutionError, match="-1"):
        fusion.compile(model).run(before)
