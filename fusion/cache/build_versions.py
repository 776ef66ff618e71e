"""What besides a model and the options decides the code of a form: the sources of fusion, and the packages it uses."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

_OURS = ("fusion", "partition", "backends", "tuning")
_OF_KERNELS = ("backends",)
_SOURCES = (".py", ".lark")
# Of theirs, onnx and NumPy compute constants, ml_dtypes rounds them, and ONNX Runtime says what it has kernels for.
_THEIRS = ("apache-tvm", "apache-tvm-ffi", "onnx", "onnxruntime", "numpy", "ml_dtypes")
_LIBRARIES = "*tvm*"
_STARTED = time.time()


@functools.cache
def build_versions() -> dict[str, str]:
    """Return them by name. Of ours all sources count, 2 MB that are read in 30 ms: a change anywhere is a new one.

    Raises:
        OSError: The sources are not there, or are not those that this process runs.
    """
    packages = {name: _version(name) for name in _THEIRS}
    return {**packages, "python": platform.python_version(), "sources": _sources(_OURS), "libtvm": _libraries()}


@functools.cache
def kernel_versions() -> dict[str, str]:
    """Return, by name, the versions of what makes the code of kernels: the same on all machines that have these.

    Raises:
        OSError: As `build_versions`.
    """
    return {"apache-tvm": _version("apache-tvm"), "backends": _sources(_OF_KERNELS)}


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:  # one of its other names: onnxruntime-gpu
        return ""


def _folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    places = list(spec.submodule_search_locations or ()) if spec else []
    if not places:
        raise FileNotFoundError(f"the package {package} is in no folder")
    return Path(places[0])


def _sources(packages: Sequence[str]) -> str:
    total = hashlib.sha256()
    for package in packages:
        folder = str(_folder(package))
        found = sorted(_files(folder))
        if not found:  # compiled files alone, which say nothing of what they were made of
            raise FileNotFoundError(f"the sources of {package} are not there")
        for path in found:
            with open(path, "rb") as file:
                if os.fstat(file.fileno()).st_mtime > _STARTED:
                    raise OSError(f"{path} has changed since this process began")
                data = file.read()
            total.update(f"{package} {path[len(folder) :]} {len(data)}\n".encode() + data)
    return total.hexdigest()


def _files(folder: str) -> Iterator[str]:
    """Yield the sources in a folder and those below it; as objects of `pathlib` 900 take 0.1 s more."""
    for place, _, names in os.walk(folder):
        yield from (os.path.join(place, name) for name in names if name.endswith(_SOURCES))


def _libraries() -> str:
    """Return sizes and times of the compiler's libraries, LLVM among them: of one version there may be several."""
    states = ((path, path.stat()) for path in sorted((_folder("tvm") / "lib").glob(_LIBRARIES)))
    return " ".join(f"{path.name} {status.st_size} {status.st_mtime_ns}" for path, status in states)
