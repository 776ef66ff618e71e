"""Model files that are something else: a directory, another format, an operator set of the future."""

from __future__ import annotations

import zipfile
from pathlib import Path

import onnx
import pytest

import fusion
from fusion.errors import FusionError, InvalidModelError, ModelFileError, UnsupportedOperatorError
from fusion.frontends import read_signature
from tests.module import small_models


@pytest.mark.parametrize("name", [".", "..", "/", "folder"])
def test_a_directory(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelFileError, match="is a directory"):
        read_signature(name)


def _member(name: str) -> bytes:
    return f"zip:{name}".encode()


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x80\x02}q\x00.", "a PyTorch file"),
        (b"\x80\x04\x95\x00", "a pickle"),
        (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
        (b"\x1c\x00\x00\x00TFL3\x14\x00", "a TensorFlow Lite model"),
        (b'\x10\x00\x00\x00\x00\x00\x00\x00{"__metadata__":{}}', "a safetensors file"),
        (_member("m/data.pkl"), "a PyTorch file"),
        (_member("m/archive_format"), "a torch.export file"),
        (_member("manifest.json"), "a saved module of fusion"),
    ],
)
def test_another_format_is_named(data: bytes, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(data)
    if data.startswith(b"zip:"):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(data[4:].decode(), b"")
    with pytest.raises(ModelFileError, match=kind) as caught:
        read_signature(path)
    assert "onnx.checker" not in caught.value.hint


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04 cut short", b"no model"])
def test_what_is_no_model_at_all(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match="is not an ONNX model") as caught:
        read_signature(path)
    assert "onnx.checker" in caught.value.hint


def test_an_operator_set_of_the_future() -> None:
    newest = onnx.defs.onnx_opset_version()
    model = small_models.mlp()
    model.opset_import[0].version = newest
    read_signature(model)
    model.opset_import[0].version = newest + 71
    with pytest.raises(UnsupportedOperatorError, match=rf"operator set {newest + 71}, .* {newest}\n") as caught:
        read_signature(model)
    assert "newer onnx" in caught.value.hint


@pytest.mark.parametrize("dims", ["3", "n"])
def test_two_inputs_of_one_name(dims: str) -> None:
    text = f'<ir_version: 8, opset_import: ["": 18]> graph (float[{dims}] x, float[{dims}] x) => (float[{dims}] y)'
    with pytest.raises(InvalidModelError, match="two inputs 'x'"):
        fusion.compile(onnx.parser.parse_model(text + "{ y = Relu (x) }"))


def test_a_node_without_an_operator_in_the_newest_set() -> None:
    newest = onnx.defs.onnx_opset_version()
    text = f'<ir_version: 8, opset_import: ["": {newest}]> graph (float[3] x) => (float[3] y) {{ y = Relu (x) }}'
    model = onnx.parser.parse_model(text)
    model.graph.node[0].Clear()
    with pytest.raises(FusionError):
        fusion.compile(model)
