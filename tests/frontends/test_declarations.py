"""What is read of an ONNX file for its inputs and outputs: all but the large data of its tensors."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from fusion.frontends.onnx.declarations import read_declarations
from fusion.frontends.onnx.weights import Weights
from fusion.tensors import ALIGNMENT, as_numpy


def _tensor(name: str, count: int) -> TensorProto:
    return numpy_helper.from_array(np.arange(count, dtype="float32"), name)


def _model() -> onnx.ModelProto:
    """Return a model with data in initializers, a Constant, a branch and, as numbers, outside of raw data."""
    numbers = helper.make_tensor("numbers", TensorProto.FLOAT, [4000], [1.0] * 4000)
    branch = helper.make_graph(
        [helper.make_node("Identity", ["held"], ["out"])], "branch", [], [helper.make_empty_tensor_value_info("out")],
        [_tensor("held", 5000)],
    )  # fmt: skip
    nodes = [
        helper.make_node("Constant", [], ["c"], value=_tensor("c", 300_000)),
        helper.make_node("If", ["flag"], ["chosen"], then_branch=branch, else_branch=branch),
        helper.make_node("Sum", ["x", "c", "w"], ["y"]),
    ]
    x, flag = (
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"]),
        helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
    )
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    weights = [_tensor("w", 300_000), _tensor("small", 3), numbers]
    return helper.make_model(helper.make_graph(nodes, "g", [x, flag], [y], weights), producer_name="a test")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("declarations") / "model.onnx"
    onnx.save(_model(), path)
    return path


def test_only_large_data_is_left_out(path: Path) -> None:
    expected = _model()
    for tensor in (expected.graph.initializer[0], expected.graph.node[0].attribute[0].t):
        tensor.raw_data = b""
    assert onnx.load_model_from_string(read_declarations(path)) == expected
    # What lies in a graph within a node is kept, and so are numbers that are not in raw data.
    assert len(read_declarations(path)) < 70_000


def test_a_damaged_file_is_parsed_as_it_is(path: Path, tmp_path: Path) -> None:
    whole = path.read_bytes()
    assert read_declarations(_written(tmp_path, whole[:-7])) == whole[:-7]
    rng = random.Random(0)
    for _ in range(200):
        damaged = bytearray(whole[: rng.randrange(len(whole))] if rng.random() < 0.3 else whole)
        for _ in range(rng.randrange(4)):
            damaged[rng.choice((rng.randrange(64), rng.randrange(len(damaged)))) % len(damaged)] = rng.randrange(256)
        read = _written(tmp_path, bytes(damaged))
        assert (_parsed(read_declarations(read)) is None) == (_parsed(bytes(damaged)) is None)


def test_a_large_weight_is_in_memory_once() -> None:
    weights = Weights.of(_model().graph)
    assert np.shares_memory(as_numpy(weights.operand("w").value), weights.arrays["w"])
    assert weights.arrays["w"].ctypes.data % ALIGNMENT == 0
    np.testing.assert_array_equal(weights.arrays["w"], np.arange(300_000, dtype="float32"))


def _written(folder: Path, data: bytes) -> Path:
    path = folder / "damaged.onnx"
    path.write_bytes(data)
    return path


def _parsed(data: bytes) -> onnx.ModelProto | None:
    try:
        return onnx.load_model_from_string(data)
    except Exception:  # protobuf's own, of which there are several
        return None
