"""A name whose bytes are not UTF-8, as a flipped bit leaves it, is an error of fusion."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser
import pytest

import fusion
from fusion.errors import FusionError, InvalidModelError
from tests.module import small_models


def _damaged(model: onnx.ModelProto, name: bytes, bits: int, path: Path) -> Path:
    data = bytearray(model.SerializeToString())
    at = data.find(name)
    while at >= 0:
        data[at + 2] ^= bits
        at = data.find(name)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("bits", [0x80, 0x40, 0xFF])
def test_a_damaged_name(bits: int, tmp_path: Path) -> None:
    model = small_models.mlp()
    model.graph.node[0].op_type = "Flipped"
    with pytest.raises(FusionError):
        fusion.compile(_damaged(model, b"Flipped", bits, tmp_path / "model.onnx"))


_NAMED = onnx.parser.parse_model(
    """
    <ir_version: 8, opset_import: ["": 18, "imported": 1]>
    graph (float[2] argument) => (float[2] result) <float[2] weights = {1.0, 2.0}>
    { between = Add (argument, weights) result = LeakyRelu <alpha = 0.1> (between) }
    """
)


@pytest.mark.parametrize("name", [b"argument", b"weights", b"between", b"result", b"LeakyRelu", b"alpha"])
def test_names_of_each_kind(name: bytes, tmp_path: Path) -> None:
    with pytest.raises(InvalidModelError, match="is no text"):
        fusion.compile(_damaged(_NAMED, name, 0x80, tmp_path / "model.onnx"))


def test_a_domain_that_no_node_is_of(tmp_path: Path) -> None:
    fusion.compile(_damaged(_NAMED, b"imported", 0x80, tmp_path / "model.onnx"))
