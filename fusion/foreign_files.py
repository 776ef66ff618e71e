"""Tells what a file is that is no ONNX model, from its first bytes and its name: most are models in another format."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

from fusion.errors import ModelFileError
from fusion.system.files import check_file, read_file

CHECK = "check the file with `python -m onnx.checker`, or export the model again"
_HINT = "give the path of an ONNX file, or of the text of a Relay module"
_FROM_PYTORCH = "load it in Python and compile the module: fusion.compile((module, (example_input, ...)))"
_FROM_EXPORT = "load it in Python and compile the program: fusion.compile(torch.export.load(path))"
_EXPORT = "export the model it belongs to as ONNX"
_FROM_WEIGHTS = (
    f"{_EXPORT}: torch.onnx.export, or for transformers `optimum-cli export onnx --model FOLDER OUTPUT`"
)
_FROM_KERAS = 'load it in Keras and call model.export("model.onnx", format="onnx")'
_FROM_TENSORFLOW = "convert it: python -m tf2onnx.convert --saved-model FOLDER (or --graphdef FILE) --output model.onnx"
_FROM_LITE = "convert it: python -m tf2onnx.convert --tflite FILE --output model.onnx"
_FROM_OPENVINO = "there is no way back to ONNX: export the model it was converted from"
_FROM_COREML = "convert it with onnxmltools.convert_coreml, or export the model it was converted from as ONNX"
_FROM_ENGINE = "it is machine code for one GPU: compile the ONNX model it was built from"
_FROM_ORT = "compile the .onnx file it was converted from"
_SAFETENSORS = "a safetensors file, which holds weights only"
# Offset and bytes there, what the file is, and what to do with it. Pickle protocols 2 to 5 start with 0x80.
_MAGIC = (
    (0, b"\x80\x02", "a PyTorch file", _FROM_PYTORCH),
    (0, b"\x80\x03", "a pickle", _EXPORT),
    (0, b"\x80\x04", "a pickle", _EXPORT),
    (0, b"\x80\x05", "a pickle", _EXPORT),
    (0, b"\x89HDF\r\n", "an HDF5 file, as Keras writes", _FROM_KERAS),
    (0, b"GGUF", "a GGUF file of llama.cpp", _FROM_WEIGHTS),
    (0, b"\x93NUMPY", "an array of NumPy", _EXPORT),
    (0, b"ftrt", "a TensorRT engine", _FROM_ENGINE),
    (4, b"TFL3", "a TensorFlow Lite model", _FROM_LITE),
    (4, b"ORTM", "a model in ONNX Runtime's own format", _FROM_ORT),
)
# The end of a member's name in a zip archive, and the same.
_MEMBERS = (
    ("data.pkl", "a PyTorch file", _FROM_PYTORCH),
    ("archive_format", "a torch.export file", _FROM_EXPORT),
    ("manifest.json", "a saved module of fusion", "run it: fusion.load(path)"),
    ("model.weights.h5", "a Keras model", _FROM_KERAS),
    (".npy", "an archive of NumPy's arrays", _EXPORT),
)
# What names say of content that does not: the protobufs of other frameworks, and damaged files.
_SUFFIXES = {
    ".pb": ("a TensorFlow graph by its name", _FROM_TENSORFLOW),
    ".mlmodel": ("a Core ML model by its name", _FROM_COREML),
    ".tflite": ("a TensorFlow Lite model by its name", _FROM_LITE),
    ".h5": ("a Keras model by its name", _FROM_KERAS),
    ".keras": ("a Keras model by its name", _FROM_KERAS),
    ".safetensors": ("a safetensors file by its name, which holds weights only", _FROM_WEIGHTS),
    ".gguf": ("a GGUF file of llama.cpp by its name", _FROM_WEIGHTS),
    ".pt": ("a PyTorch file by its name", _FROM_PYTORCH),
    ".pth": ("a PyTorch file by its name", _FROM_PYTORCH),
    ".pt2": ("a torch.export file by its name", _FROM_EXPORT),
    ".engine": ("a TensorRT engine by its name", _FROM_ENGINE),
    ".plan": ("a TensorRT engine by its name", _FROM_ENGINE),
    ".xml": ("an OpenVINO model by its name", _FROM_OPENVINO),
    ".npz": ("an archive of NumPy's arrays by its name", _EXPORT),
}
# A file in a folder that is a model, and the same.
_FOLDERS = (
    ("saved_model.pb", "a TensorFlow SavedModel", _FROM_TENSORFLOW),
    ("Data/com.apple.CoreML", "a Core ML package", _FROM_COREML),
    ("model.safetensors", "a folder of Hugging Face, with weights only", _FROM_WEIGHTS),
)


def check_model_file(path: Path) -> None:
    """Raise unless a file lies at `path` that may be a model for fusion.

    Raises:
        ModelFileError: There is none, or its first bytes are those of another format.
    """
    try:
        check_file(path)
    except IsADirectoryError as error:
        kind, hint = next(((kind, hint) for name, kind, hint in _FOLDERS if (path / name).exists()), ("", _HINT))
        raise ModelFileError(
            f"{str(path)!r} is a directory", why=f"it holds {kind}" if kind else "", hint=hint
        ) from error
    except FileNotFoundError as error:
        raise ModelFileError(f"there is no file {str(path)!r}", hint=_HINT) from error
    except OSError as error:
        raise ModelFileError(
            f"cannot read {str(path)[:200]!r}", why=error.strerror or str(error), hint=_HINT
        ) from error
    known = next(_safe_matches(path), None)
    if known is not None:
        raise _foreign(path, *known)


def not_onnx(path: Path, why: str) -> ModelFileError:
    """Return the error for the file at `path`, which could not be read as ONNX because of `why`."""
    known = next(_safe_matches(path), None) or _SUFFIXES.get(path.suffix.lower())
    if known is not None:
        return _foreign(path, *known)
    return ModelFileError(f"{path.name} is not an ONNX model, or is cut short", where=str(path), why=why, hint=CHECK)


def _foreign(path: Path, kind: str, hint: str) -> ModelFileError:
    return ModelFileError(f"{path.name} is {kind}, not an ONNX model", where=str(path), hint=hint)


def _safe_matches(path: Path) -> Iterator[tuple[str, str]]:
    try:
        yield from _matches(path)
    except Exception:  # a damaged archive raises whatever zipfile and zlib raise
        return


def _matches(path: Path) -> Iterator[tuple[str, str]]:
    head = read_file(path, 512)
    for offset, magic, kind, hint in _MAGIC:
        if head[offset:].startswith(magic):
            yield kind, hint
    if head[8:9] == b"{" and struct.unpack("<Q", head[:8])[0] + 8 <= check_file(path):
        yield _SAFETENSORS, _FROM_WEIGHTS
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text.startswith((b"<?xml", b"<net ")):
        yield ("an OpenVINO model" if b"<net " in text else "an XML file"), _FROM_OPENVINO
    if head.startswith(b"PK") and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
        yield from ((kind, hint) for end, kind, hint in _MEMBERS if any(name.endswith(end) for name in names))
