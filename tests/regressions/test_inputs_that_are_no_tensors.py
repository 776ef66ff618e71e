"""Models that run on ONNX Runtime whole refused sequences (lists) and optionals (None) as inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import fusion
from fusion.errors import InputError, UnsupportedOperatorError

_TENSOR = helper.make_tensor_type_proto(TensorProto.FLOAT, [2])
_SEQUENCE = helper.make_sequence_type_proto(_TENSOR)


def _model(node: onnx.NodeProto, inputs: dict[str, onnx.TypeProto], output: onnx.TypeProto) -> onnx.ModelProto:
    values = [helper.make_value_info(name, kind) for name, kind in inputs.items()]
    graph = helper.make_graph([node], "values", values, [helper.make_value_info("y", output)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.fixture(scope="module")
def insert() -> fusion.CompiledModule:
    """Append a tensor to a sequence."""
    node = helper.make_node("SequenceInsert", ["s", "x"], ["y"])
    return fusion.compile(_model(node, {"s": _SEQUENCE, "x": _TENSOR}, _SEQUENCE), threads=1)


def _check_insert(module: fusion.CompiledModule) -> None:
    first, second = np.ones(2, "float32"), np.full(2, 3, "float32")
    for sequence in ([first], [first, second], []):
        made = module.run({"s": sequence, "x": second})["y"]
        assert [item.tolist() for item in made] == [item.tolist() for item in (*sequence, second)]


def test_sequence(insert: fusion.CompiledModule) -> None:
    assert not insert.dynamic
    _check_insert(insert)


def test_saved_module_takes_a_sequence(insert: fusion.CompiledModule, tmp_path: Path) -> None:
    insert.save(tmp_path / "insert.fusion")
    _check_insert(fusion.load(tmp_path / "insert.fusion"))


def test_the_tensor_beside_it_is_still_checked(insert: fusion.CompiledModule) -> None:
    with pytest.raises(InputError, match="wrong shape"):
        insert.run({"s": [], "x": np.ones(3, "float32")})
    with pytest.raises(InputError, match="not an array"):
        insert.run({"s": [], "x": [1.0, 2.0]})


@pytest.mark.parametrize("value", [None, np.ones(2, "float32")])
def test_optional(value: np.ndarray | None) -> None:
    node = helper.make_node("OptionalHasElement", ["o"], ["y"])
    optional = helper.make_optional_type_proto(_TENSOR)
    model = _model(node, {"o": optional}, helper.make_tensor_type_proto(TensorProto.BOOL, []))
    assert bool(fusion.compile(model, threads=1).run({"o": value})["y"]) is (value is not None)


def test_a_map() -> None:
    """Not taken for a tensor: who reads it is refused, when it is compiled or run."""
    node = helper.make_node("RegexFullMatch", ["x"], ["y"], pattern="a")
    kind = onnx.TypeProto()
    kind.map_type.key_type = TensorProto.STRING
    kind.map_type.value_type.CopyFrom(helper.make_tensor_type_proto(TensorProto.STRING, [1]))
    model = _model(node, {"x": kind}, helper.make_tensor_type_proto(TensorProto.BOOL, [1]))
    model.opset_import[0].version = 20
    with pytest.raises(UnsupportedOperatorError):
        fusion.compile(model).run({"x": np.array(["a"], object)})
