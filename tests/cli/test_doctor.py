"""`fusion doctor` lists every backend that is registered, and what compiles CUDA kernels, with versions, or why one
cannot be used."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest

import fusion
from backends import registry
from backends.cuda import packages
from backends.cuda.codegen import nvrtc
from backends.cuda.libraries.cublaslt.library import LIBRARY as CUBLASLT
from backends.cuda.libraries.cudnn.library import LIBRARY as CUDNN
from fusion import context
from fusion.cli import doctor
from tests.backends.importable import importable

SOURCE = """
class Regions:
    version = "7.5"
    def why_not_taken(self, call): ...
    def export(self, function): ...
    def open(self, data, threads): ...

class Matches:
    patterns = ()
    def export(self, function): ...
    def open(self, data, threads): ...

class Writes:
    kinds = ("hexagon",)
    def compiler(self, fields, threads): ...

regions, matches, writes, lacks = Regions(), Matches(), Writes(), object()
"""


def test_each_backend_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "several.py").write_text(SOURCE)
    (tmp_path / "broken_one.py").write_text("raise RuntimeError('its driver is too old')")
    (tmp_path / "ends.py").write_text("import os; os._exit(1)")
    info = tmp_path / "several-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: several\nVersion: 1.0\n")
    lines = "".join(f"{name} = several:{name}\n" for name in ("regions", "matches", "writes", "lacks"))
    lines += "broken_one = broken_one:BACKEND\nends = ends:BACKEND\n"
    (info / "entry_points.txt").write_text(f"[fusion.backends]\n{lines}")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)  # as where it is not installed
    with importable(tmp_path, "several", monkeypatch):
        found = {each.name.removeprefix("backend "): each for each in doctor._backends()}
    assert {*registry.generators(), *registry.libraries(), "regions", "ends"} <= {*found}
    told = {name: (each.value, each.good) for name, each in found.items()}
    assert told["cpu"] == (f"{fusion.__version__}, kernels for targets 'llvm'", None)
    assert told["tvm"] == (f"{registry.library('tvm').version}, regions", True)
    assert told["onnxruntime"] == ("is not installed: pip install onnxruntime", None)
    assert told["regions"] == ("7.5, regions", True)
    assert told["matches"] == ("no version, so that it is not measured, what its patterns match", True)
    assert told["writes"] == ("kernels for targets 'hexagon'", True)
    assert found["lacks"].good is False
    assert "is no library: object lacks patterns" in found["lacks"].value
    assert told["broken_one"] == ("cannot be imported: RuntimeError: its driver is too old", False)
    assert "it crashed or hung while another process imported it" in found["ends"].value
    assert "update the package that registers 'ends:BACKEND', or remove it" in found["ends"].hint


def _compilers() -> dict[str, str]:
    """Return what is told of what compiles CUDA kernels, or runs in their place."""
    wanted = ("nvrtc", "nvcc", "cublaslt", "cudnn")
    return {each.name: each.value for each in doctor._devices() if each.name in wanted}


def _nvrtc(folder: Path, body: str) -> str:
    """Return a library that answers as NVRTC does when it is asked for its version."""
    source, library = folder / "nvrtc.c", folder / "libnvrtc.so.12"
    source.write_text(f"int nvrtcVersion(int *major, int *minor) {{ {body} }}")
    subprocess.run(["cc", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    return str(library)


def test_what_compiles_cuda_kernels_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its version and its place; what is not installed is said to be none, and how to get a library."""
    monkeypatch.setattr(packages, "_folders", lambda package: ())
    monkeypatch.setattr(nvrtc, "find_nvrtc", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    for library in (CUBLASLT, CUDNN):
        monkeypatch.setattr(type(library), "version", property(lambda self: version("no such package")))
    assert _compilers() == {
        "nvrtc": "none",
        "nvcc": "none",
        "cublaslt": f"none: pip install {CUBLASLT.packages[0]}",
        "cudnn": f"none: pip install {CUDNN.packages[0]}",
    }
    monkeypatch.undo()
    path, nvcc = _nvrtc(tmp_path, "*major = 12; *minor = 9; return 0;"), tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\n")
    nvcc.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(nvrtc, "find_nvrtc", lambda: path)
    monkeypatch.setattr(type(CUBLASLT), "version", "12.9.1.4")
    told = _compilers()
    assert (told["nvrtc"], told["nvcc"], told["cublaslt"]) == (f"12.9 ({path})", str(nvcc), "12.9.1.4")


@pytest.mark.parametrize(
    ("body", "told"), [("return 3;", "fails with its error 3: "), ("", "cannot be loaded: ")], ids=["fails", "broken"]
)
def test_a_broken_nvrtc_ends_no_report(body: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _nvrtc(tmp_path, body) if body else str(tmp_path / "nvidia.txt")
    if not body:
        Path(path).write_text("no library")
    monkeypatch.setattr(nvrtc, "find_nvrtc", lambda: path)
    assert told in _compilers()["nvrtc"]
    assert path in _compilers()["nvrtc"]


def test_which_model_of_the_machine_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(model: object) -> str:
        monkeypatch.setattr(context, "resolve", lambda: SimpleNamespace(model=model))
        (found,) = doctor._model()
        return found.value

    assert told(None) == "none: fusion tune --machine makes one"
    made = SimpleNamespace(kernels=63, points=3696, made_at=0.0, errors={"matmul": 0.1, "conv2d": 0.2})
    assert told(made).startswith("of 63 kernels at 3696 points, 19")
    assert told(made).endswith("ranks conv2d, matmul")
    made.errors = {}
    assert told(made).endswith("ranks no kernels: the tables are as good")
