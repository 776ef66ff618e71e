"""What is wrong with a command is said before anything is compiled, or even imported."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest

from fusion.errors import ModelFileError, SavedFileError, unknown_shape
from fusion.frontends import read_signature
from fusion.module.archive import write_archive
from tests.cli.commands import run
from tests.module import small_models

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "mlp.onnx"
    onnx.save(small_models.mlp(), path)
    return path


@pytest.fixture
def nothing_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("it compiled")

    monkeypatch.setattr("fusion.compile", fail, raising=False)
    monkeypatch.setattr("fusion.convert", fail, raising=False)


@pytest.mark.usefixtures("nothing_compiles")
@pytest.mark.parametrize(
    ("verb", "option"), [("compile", "-o"), ("run", "-o"), ("convert", "-o"), ("explain", "--html")]
)
@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("none/out", "No such file or directory"),
        ("model/out", "Not a directory"),
        ("folder", "is a directory"),
        ("/proc/out", "cannot write /proc/out"),
        ("/dev/null", "is no regular file"),
        ("model", "would be lost"),
    ],
)
def test_an_output_that_cannot_be_written(
    verb: str, option: str, output: str, words: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder").mkdir()
    path = model if output == "model" else tmp_path / output.replace("model", str(model))
    code, _, err = run(capsys, verb, model, option, path)
    assert code == 2
    assert words in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder"]
    assert sorted(path.name for path in model.parent.iterdir()) == ["mlp.onnx"]


def test_usage_is_checked_without_the_compiler(model: Path, tmp_path: Path) -> None:
    code = (
        "import sys, fusion.cli\n"
        "for line in open(sys.argv[1]).read().splitlines():\n"
        "    print(fusion.cli.main(line.split(' ')))\n"
        "print(sorted({'tvm', 'tvm_ffi', 'onnx', 'torch', 'onnxruntime'} & set(sys.modules)))"
    )
    commands = [
        "compile none.onnx", "run none.fusion", "bench none.onnx", "explain none.relay", "compare none.onnx",
        f"compare {model} none.onnx", f"compile {model} --effort wild", f"run {model} --precision fp8",
        f"run {model} --shape x=rows,8",
        f"explain {model} --threads 0", f"convert {model} --shape x:3", f"run {model} --input x",
        f"run {model} --input x=none.npy", f"compile {model} -o none/m.fusion", f"compile {model} -o .",
        f"bench {model} --shapes none.json", f"bench {model} --shapes {model}",
    ]  # fmt: skip
    (tmp_path / "commands").write_text("\n".join(commands))
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "commands")], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.splitlines() == ["2"] * len(commands) + ["[]"], done.stderr


@pytest.mark.parametrize(
    ("name", "data", "kind", "hint"),
    [
        ("m.xml", b'<?xml version="1.0"?>\n<net name="m" version="11">', "an OpenVINO model", "no way back to ONNX"),
        ("m.xml", b"damaged", "an OpenVINO model by its name", "no way back to ONNX"),
        ("m.tflite", b"\x1c\0\0\0TFL3....", "a TensorFlow Lite model", "--tflite"),
        ("m.safetensors", (2).to_bytes(8, "little") + b"{}", "a safetensors file", "optimum-cli"),
        ("m.safetensors", b"cut", "a safetensors file by its name", "optimum-cli"),
        ("m.gguf", b"GGUF\3\0\0\0", "a GGUF file", "optimum-cli"),
        ("m.engine", b"ftrt\0\0", "a TensorRT engine", "built from"),
        ("m.h5", b"\x89HDF\r\n\x1a\n", "an HDF5 file", 'format="onnx"'),
        ("m.pb", b"\x0a\xff\xff", "a TensorFlow graph by its name", "tf2onnx"),
        ("m.mlmodel", b"\x08\x04\x12\xff", "a Core ML model by its name", "convert_coreml"),
        ("m.ort", b"\x1c\0\0\0ORTM....", "a model in ONNX Runtime's own format", ".onnx file"),
        ("m.pth", b"\x80\x02", "a PyTorch file", "fusion.compile((module,"),
        ("m.pt2", b"cut", "a torch.export file by its name", "torch.export.load"),
        ("m.onnx", b"cut", "not an ONNX model, or is cut short", "onnx.checker"),
    ],
)
def test_files_of_other_formats_are_called_by_their_names(
    name: str, data: bytes, kind: str, hint: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ModelFileError, match="not an ONNX model") as caught:
        read_signature(tmp_path / name)
    assert kind in caught.value.what
    assert hint in caught.value.hint


def test_archives_and_folders_of_other_formats(tmp_path: Path) -> None:
    np.savez(tmp_path / "m.npz", x=np.ones(3))
    with zipfile.ZipFile(tmp_path / "m.keras", "w") as archive:
        archive.writestr("model.weights.h5", "")
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved/saved_model.pb").write_bytes(b"")
    found = {}
    for name in ("m.npz", "m.keras", "saved"):
        with pytest.raises(ModelFileError) as caught:
            read_signature(tmp_path / name)
        found[name] = str(caught.value)
    assert "an archive of NumPy's arrays" in found["m.npz"]
    assert "a Keras model" in found["m.keras"]
    assert "a TensorFlow SavedModel" in found["saved"]
    assert "--saved-model" in found["saved"]


@pytest.mark.parametrize(
    ("declared", "example"),
    [
        ((None, 3, None, None), "(batch, 3, height, width)"),
        ((None,), "(length,)"),
        ((2, None), "(2, length)"),
        (None, "(batch, channels, height, width)"),
        ((None, 1, 2, 3, 4, None), "(batch, 1, 2, 3, 4, size_5)"),
    ],
)
def test_a_shape_to_give_is_shown_with_names(declared: tuple[int | None, ...] | None, example: str) -> None:
    assert unknown_shape("x", declared).hint.endswith(f"shapes={{'x': {example}}}")


def test_a_saved_module_replaces_no_device(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for path in (Path("/dev/null"), tmp_path / "folder"):
        with pytest.raises(SavedFileError, match="cannot write"):
            write_archive(path, {"a": b""})
    assert Path("/dev/null").is_char_device()
