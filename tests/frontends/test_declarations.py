"""What is read of an ONNX file for its inputs and outputs: all but the large data of its tensors."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import fusion
from fusion.errors import InvalidModelError
from fusion.frontends.onnx.declarations import read_declarations
from fusion.frontends.onnx.read_model import read_model
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


@pytest.mark.parametrize("beside", [False, True])
def test_large_weights_are_read_apart(beside: bool, tmp_path: Path) -> None:
    """From the model's own file, which may be a link to another folder, or from one beside it."""
    whole = _model()
    saved = tmp_path / "saved" / "model.onnx"
    saved.parent.mkdir()
    onnx.save(_model(), saved, save_as_external_data=beside, location="data", size_threshold=1000)
    link = tmp_path / "link.onnx"
    link.symlink_to(saved)
    read = read_model(saved if beside else link, weights_apart=True)
    (w, small, numbers), arrays = read.proto.graph.initializer, read.weights.arrays
    assert (w.raw_data, small.raw_data, len(numbers.float_data)) == (b"", whole.graph.initializer[1].raw_data, 4000)
    assert arrays["w"].ctypes.data % ALIGNMENT == 0
    np.testing.assert_array_equal(arrays["w"], np.arange(300_000, dtype="float32"))
    assert read.weights.tensor("w") == whole.graph.initializer[0]
    held = read.weights.in_model(read.proto).graph.initializer
    for ours, theirs in zip(held, whole.graph.initializer, strict=True):
        np.testing.assert_array_equal(numpy_helper.to_array(ours), numpy_helper.to_array(theirs))


def test_onnxruntime_and_branches_are_given_what_was_apart(tmp_path: Path) -> None:
    """A product of float64 runs on ONNX Runtime, which has the weight in its own model."""
    w = np.random.default_rng(0).standard_normal((200, 200))
    x = np.random.default_rng(1).standard_normal((200, 200))
    out = helper.make_tensor_value_info("out", TensorProto.DOUBLE, [200, 200])
    product = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["out"])], "product", [], [out])
    other = helper.make_graph([helper.make_node("Identity", ["x"], ["out"])], "other", [], [out])
    nodes = [
        helper.make_node("If", ["flag"], ["chosen"], then_branch=product, else_branch=other),
        helper.make_node("MatMul", ["x", "w"], ["product"]),
    ]
    given = [
        helper.make_tensor_value_info("x", TensorProto.DOUBLE, [200, 200]),
        helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
    ]
    results = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, [200, 200]) for name in ("chosen", "product")]
    graph = helper.make_graph(nodes, "g", given, results, [numpy_helper.from_array(w, "w")])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    module = fusion.compile(path, cache=False)
    assert "onnxruntime" in module.placement.backends
    for found in module(x, np.array(True)):
        np.testing.assert_allclose(found, x @ w)


def test_rows_of_a_weight_that_was_apart_are_known_beside_operators_of_onnxruntime(tmp_path: Path) -> None:
    w = np.random.default_rng(0).standard_normal((256, 128)).astype("float32")
    x = np.ones((4, 128), "float32")
    nodes = [
        helper.make_node("Gather", ["w", "place"], ["row"]),
        helper.make_node("Add", ["x", "row"], ["sum"]),
        helper.make_node("CDist", ["sum", "x"], ["y"], domain="com.microsoft", metric="sqeuclidean"),
    ]
    weights = [numpy_helper.from_array(w, "w"), numpy_helper.from_array(np.array([3]), "place")]
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 128])]
    results = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 4])]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph(nodes, "g", given, results, weights)
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "model.onnx")
    module = fusion.compile(tmp_path / "model.onnx", cache=False, strict=False)
    assert "internal error" not in module.explain()
    np.testing.assert_allclose(np.ravel(module(x)), np.full(16, (w[3] ** 2).sum()), rtol=1e-4)


def test_a_weight_whose_data_lay_in_another_file_before(tmp_path: Path) -> None:
    """`onnx.load` says so explicitly, behind the data, and others leave the name of the file."""
    onnx.save(_model(), tmp_path / "parts.onnx", save_as_external_data=True, location="data", size_threshold=1000)
    model = onnx.load(tmp_path / "parts.onnx")
    assert model.graph.initializer[0].HasField("data_location")
    onnx.save(model, tmp_path / "whole.onnx")
    for key, value in {"location": "no file", "offset": "8"}.items():
        model.graph.initializer[0].external_data.add(key=key, value=value)
    onnx.save(model, tmp_path / "named.onnx")
    for name in ("whole.onnx", "named.onnx"):
        read = read_model(tmp_path / name, weights_apart=True)
        np.testing.assert_array_equal(read.weights.arrays["w"], np.arange(300_000, dtype="float32"))


def test_of_a_weight_in_two_places_the_file_beside_is_read(tmp_path: Path) -> None:
    """As onnx does, and ONNX Runtime."""
    model = _model()
    (tmp_path / "data").write_bytes(np.full(300_000, 2, "float32").tobytes())
    tensor = model.graph.initializer[0]
    tensor.external_data.add(key="location", value="data")
    tensor.data_location = TensorProto.EXTERNAL
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    for apart in (False, True):
        assert (read_model(tmp_path / "model.onnx", weights_apart=apart).weights.arrays["w"] == 2).all()


def test_of_two_weights_with_a_name_the_last_is_taken(tmp_path: Path) -> None:
    proto = _model()
    proto.graph.initializer.append(numpy_helper.from_array(np.full(300_000, 2, "float32"), "w"))
    onnx.save(proto, tmp_path / "model.onnx")
    read = read_model(tmp_path / "model.onnx", weights_apart=True)
    assert (read.weights.arrays["w"] == 2).all()


def test_a_weight_that_does_not_fill_its_shape(tmp_path: Path) -> None:
    proto = _model()
    proto.graph.initializer[0].dims[0] -= 1
    onnx.save(proto, tmp_path / "model.onnx")
    with pytest.raises(InvalidModelError, match="does not fill its shape"):
        read_model(tmp_path / "model.onnx", weights_apart=True)


def _written(folder: Path, data: bytes) -> Path:
    path = folder / "damaged.onnx"
    path.write_bytes(data)
    return path


def _parsed(data: bytes) -> onnx.ModelProto | None:
    try:
        return onnx.load_model_from_string(data)
    except Exception:  # protobuf's own, of which there are several
        return None
