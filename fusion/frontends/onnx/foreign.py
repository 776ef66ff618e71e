"""Tells what a file is that is no ONNX model, from its first bytes: most are models in another format."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

from fusion.files import read_file

CHECK = "check the file with `python -m onnx.checker`, or export the model again"
_FROM_PYTORCH = "load it in Python and compile the module: fusion.compile((module, (example_input, ...)))"
_FROM_EXPORT = "load it in Python and compile the program: fusion.compile(torch.export.load(path))"
_EXPORT = "export the model it belongs to as ONNX"
# Offset and bytes there, what the file is, and what to do with it. Pickle protocols 2 to 5 start with 0x80.
_MAGIC = (
    (0, b"\x80\x02", "a PyTorch file", _FROM_PYTORCH),
    (0, b"\x80\x03", "a pickle", _EXPORT),
    (0, b"\x80\x04", "a pickle", _EXPORT),
    (0, b"\x80\x05", "a pickle", _EXPORT),
    (0, b"\x89HDF\r\n", "an HDF5 file, as Keras writes", _EXPORT),
    (4, b"TFL3", "a TensorFlow Lite model", _EXPORT),
    (8, b'{"', "a safetensors file, which holds weights only", _EXPORT),
)
# The end of a member's name in a zip archive, and the same.
_MEMBERS = (
    ("data.pkl", "a PyTorch file", _FROM_PYTORCH),
    ("archive_format", "a torch.export file", _FROM_EXPORT),
    ("manifest.json", "a saved module of fusion", "run it: fusion.load(path)"),
)


def describe(path: Path) -> tuple[str, str]:
    """Return what the file at `path` seems to be ("" if nothing known) and what the user can do."""
    try:
        return next(_matches(path), ("", CHECK))
    except Exception:  # a damaged archive raises whatever zipfile and zlib raise
        return "", CHECK


def _matches(path: Path) -> Iterator[tuple[str, str]]:
    head = read_file(path, 16)
    for offset, magic, kind, hint in _MAGIC:
        if head[offset:].startswith(magic):
            yield kind, hint
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
        yield from ((kind, hint) for end, kind, hint in _MEMBERS if any(name.endswith(end) for name in names))
