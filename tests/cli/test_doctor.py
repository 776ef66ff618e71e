"""`fusion doctor` lists every backend that is registered, with its version, or why it cannot be used."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import fusion
from backends import registry
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
