"""Pipes, devices, sockets, folders and files of /proc as model, parameters, data or saved module: an error at once."""

from __future__ import annotations

import contextlib
import os
import socket
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import fusion
from fusion.cli.options import read_inputs
from fusion.errors import FusionError, ModelFileError, OptionError, ParameterFileError, SavedFileError
from fusion.model_digest import digest_model
from fusion.system.files import read_file
from tests.module import small_models

RELAY = '#[version = "0.0.5"]\ndef @main(%x: Tensor[(2, 3), float32], %w: Tensor[(2, 3), float32]) { add(%x, %w) }'
READERS: dict[str, tuple[Callable[[str], object], type[FusionError]]] = {
    "model": (fusion.compile, ModelFileError),
    "saved": (fusion.load, SavedFileError),
    "parameters": (lambda path: fusion.compile(RELAY, params=path), ParameterFileError),
    "input": (lambda path: read_inputs([f"x={path}"]), OptionError),
}


@pytest.fixture(
    params=["fifo", "socket", "folder", "zero", "kmsg", "memory", "map", "long", "nul", "surrogate", "gone"]
)
def odd(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the path of what is no regular file."""
    monkeypatch.chdir(tmp_path)  # sockets have short names only
    fixed = {
        "zero": "/dev/zero", "kmsg": "/proc/kmsg", "memory": "/proc/self/mem", "map": "/proc/self/pagemap",
        "long": "x" * 5000, "nul": "a\0b", "half": "a\udc80\ud800", "gone": "gone",
    }  # fmt: skip
    if request.param in fixed:
        yield fixed[request.param]
        return
    path = tmp_path / "odd"
    if request.param == "fifo":
        os.mkfifo(path)
    elif request.param == "folder":
        path.mkdir()
    else:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("odd")
    yield str(path)


@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_regular_file(reader: str, odd: str) -> None:
    read, error = READERS[reader]
    with pytest.raises(error):
        read(odd)


def test_a_link_to_a_device(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").symlink_to("/dev/zero")
    for suffix in ("model.onnx", "model.relay"):
        with pytest.raises(ModelFileError):
            fusion.compile(tmp_path / suffix)


def test_no_more_is_summed_up_than_the_file_says_it_has(tmp_path: Path) -> None:
    """A thread that had begun with /proc/self/pagemap took minutes, of which the caller waited for each."""
    empty = tmp_path / "model"
    empty.touch()
    assert digest_model("/proc/version").digest == digest_model(empty).digest


def test_no_more_is_read_than_the_file_has(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abcdef")
    assert read_file(path) == b"abcdef"
    assert read_file(path, 2) == b"ab"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError, match="more than the memory"):
        read_file(path)


@pytest.mark.parametrize("suffix", [".json", ".textproto", ".onnxtxt", ".pbtxt"])
@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"<" * 100_000, b"graph {" * 50_000])
def test_text_formats_of_onnx(suffix: str, data: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"model{suffix}"
    path.write_bytes(data)
    with pytest.raises(FusionError):
        fusion.compile(path)


def _external(**fields: str) -> TensorProto:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    for key, value in fields.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def _holders() -> dict[str, onnx.ModelProto]:
    """Return models, each with a tensor in the file "data" at another place."""
    tensor = _external(location="data")
    plain = helper.make_tensor("p", TensorProto.INT64, [1], [0])
    sparse = onnx.SparseTensorProto(values=tensor, indices=plain, dims=[4])
    indices = onnx.SparseTensorProto(values=helper.make_tensor("v", TensorProto.FLOAT, [1], [1]), dims=[4])
    indices.indices.CopyFrom(tensor)
    inner = helper.make_graph([helper.make_node("Identity", ["w"], ["i"])], "g", [], [_float("i")], [tensor])
    read = helper.make_node("Add", ["x", "w"], ["y"])
    constant = helper.make_node("Constant", [], ["w"], value=tensor)
    branches = helper.make_node("If", ["c"], ["w"], then_branch=inner, else_branch=inner)
    function = helper.make_function("f", "F", ["x"], ["y"], [constant, read], [helper.make_opsetid("", 17)])
    models = {
        "initializer": _model([read]),
        "sparse": _model([read]),
        "sparse indices": _model([read]),
        "attribute": _model([constant, read]),
        "sparse attribute": _model([helper.make_node("Constant", [], ["w"], sparse_value=sparse), read]),
        "branch": _model([branches, read]),
        "function": _model([helper.make_node("F", ["x"], ["y"], domain="f")]),
    }
    models["initializer"].graph.initializer.append(tensor)
    models["sparse"].graph.sparse_initializer.append(sparse)
    models["sparse indices"].graph.sparse_initializer.append(indices)
    models["function"].functions.append(function)
    models["function"].opset_import.append(helper.make_opsetid("f", 1))
    condition = helper.make_tensor("c", TensorProto.BOOL, [], [True])
    models["branch"].graph.initializer.append(condition)
    return models


def _float(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])


def _model(nodes: list[onnx.NodeProto]) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", [_float("x")], [_float("y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("holder", _holders())
def test_data_of_a_model_without_a_file(holder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read from the working directory, where there is such a file."""
    (tmp_path / "data").write_bytes(np.ones(2, np.float32).tobytes())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelFileError, match="external data"):
        fusion.compile(_holders()[holder])


@pytest.mark.parametrize("holder", _holders())
def test_data_in_the_folder_of_the_model(holder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = np.zeros(2, np.int64) if holder == "sparse indices" else np.array([3, 4], np.float32)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    (elsewhere / "data").write_bytes(bytes(100))
    (tmp_path / "model.onnx").write_bytes(_holders()[holder].SerializeToString())
    with pytest.raises(ModelFileError, match="external data"):
        fusion.compile(tmp_path / "model.onnx")
    (tmp_path / "data").write_bytes(data.tobytes())
    if "sparse" in holder:  # two values, one index
        with pytest.raises(FusionError):
            fusion.compile(tmp_path / "model.onnx")
    else:
        (result,) = fusion.compile(tmp_path / "model.onnx")(np.ones(2, np.float32))
        np.testing.assert_array_equal(result, [4, 5])


@pytest.mark.parametrize(
    "fields",
    [
        {"location": "data", "offset": "4"},
        {"location": "data", "offset": "-4", "length": "8"},
        {"location": "data", "offset": "0", "length": "9"},
        {"location": "data", "offset": "0", "length": "-1"},
        {"location": "data", "offset": "0", "length": str(1 << 62)},
        {"location": "data", "offset": "x"},
        {"location": "data", "offset": "9" * 5000},
        {"location": ""},
        {"location": "."},
        {"location": ".."},
        {"location": "../data"},
        {"location": "link/../data"},
        {"location": "/dev/zero"},
        {"location": "zero"},
        {"location": "fifo"},
        {"location": "link/outside"},
        {"location": "a\0b"},
        {"location": "x" * 5000},
        {},
    ],
    ids=range(19),
)
def test_places_of_data(fields: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    (tmp_path / "outside").write_bytes(bytes(8))
    (folder / "data").write_bytes(bytes(8))
    (folder / "zero").symlink_to("/dev/zero")
    (folder / "link").symlink_to(tmp_path)
    os.mkfifo(folder / "fifo")
    model = _model([helper.make_node("Add", ["x", "w"], ["y"])])
    model.graph.initializer.append(_external(**fields))
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises((ModelFileError, fusion.errors.InvalidModelError)):
        fusion.compile(folder / "model.onnx")


def test_data_behind_a_link_within_the_folder(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "1").write_bytes(np.ones(2, np.float32).tobytes())
    (tmp_path / "data").symlink_to("blobs/1")
    model = _model([helper.make_node("Add", ["x", "w"], ["y"])])
    model.graph.initializer.append(_external(location="data"))
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    (result,) = fusion.compile(tmp_path / "model.onnx")(np.ones(2, np.float32))
    np.testing.assert_array_equal(result, [2, 2])


def _npz(path: Path) -> bytes:
    np.savez_compressed(path, w=np.arange(6, dtype=np.float32).reshape(2, 3))
    return path.read_bytes()


def test_damaged_parameters(tmp_path: Path) -> None:
    """Each byte of an .npz in turn is another: the parameters are the same, others, or an error."""
    data = _npz(tmp_path / "p.npz")
    for index in range(len(data)):
        changed = bytearray(data)
        changed[index] ^= 0xFF
        with contextlib.suppress(ParameterFileError, OptionError):
            fusion.frontends.open_model(RELAY, bytes(changed))


@pytest.mark.parametrize("name", ["text.txt", "array.npy"])
def test_parameters_that_are_no_arrays(name: str, tmp_path: Path) -> None:
    shape = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000000,), }"
    data = {"text.txt": b"hello", "array.npy": b"\x93NUMPY\x01\x00v\x00" + shape.ljust(0x75) + b"\n"}
    with zipfile.ZipFile(tmp_path / "p.npz", "w") as archive:
        archive.writestr(name, data[name])
    with pytest.raises(ParameterFileError):
        fusion.compile(RELAY, params=tmp_path / "p.npz")


def test_a_saved_file_that_cannot_be_written(tmp_path: Path) -> None:
    module = fusion.compile(small_models.mlp())
    for path in ("a\0b", "x" * 5000, "a\ud800", tmp_path / "none" / "m.fusion", tmp_path):
        with pytest.raises(SavedFileError):
            module.save(path)
        with pytest.raises(OptionError):
            module.explain_html(path)
