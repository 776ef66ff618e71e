"""Backends by name: fusion's own, and what other packages register."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fusion
from backends import registry
from backends.cpu.backend import BACKEND as CPU
from fusion import context
from fusion.apart import imports, process
from fusion.apart.imports import Import
from fusion.errors import NotInstalledError, TargetError
from tests.backends.importable import importable
from tests.module import small_models

OTHER = """
from dataclasses import dataclass

from backends.cpu.backend import BACKEND as CPU


@dataclass(frozen=True)
class Slow:
    kinds: tuple = ("c",)

    def compiler(self, fields, threads):
        return CPU.compiler({**fields, "kind": "llvm", "mcpu": "x86-64"}, 1)
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install a package that has a backend for targets of another kind."""
    (tmp_path / "slow_backend.py").write_text(OTHER + "\n\nBACKEND = Slow()\n")
    about = tmp_path / "slow_backend-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: slow-backend\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{registry.GROUP}]\nslow = slow_backend:BACKEND\n")
    with importable(tmp_path, "slow_backend", monkeypatch):
        yield


def test_own_backends_are_found_by_the_kind_of_target() -> None:
    assert registry.backend_for("llvm") is CPU


@pytest.mark.usefixtures("installed")
def test_another_package_brings_a_kind_of_target() -> None:
    assert list(registry.others()) == ["slow"]
    text = fusion.compile(small_models.mlp(), "c", cache=False).explain()
    assert text.startswith("compiled for x86-64 ")
    assert ", 1 thread\n" in text


def test_a_package_that_cannot_be_imported_is_left_out(
    installed: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "slow_backend.py").write_text("import no_such_library\n")
    sys.modules.pop("slow_backend", None)
    assert registry.other("slow") is None
    (record,) = caplog.records
    assert record.getMessage() == (
        "the backend 'slow' (slow_backend:BACKEND) is left out: No module named 'no_such_library'"
    )


@pytest.mark.parametrize(
    ("source", "what", "why"),
    [
        ("raise ImportError('libfoo.so is not found')", "cannot be imported", "ImportError: libfoo.so is not found"),
        (
            "class Half:\n    patterns = ()\nBACKEND = Half()", "is no library",
            "Half lacks export, open of a Library, and version, why_not_taken, export, open of a GraphLibrary",
        ),
    ],
)  # fmt: skip
def test_what_is_installed_is_not_told_to_be_installed(
    source: str, what: str, why: str, installed: None, tmp_path: Path
) -> None:
    (tmp_path / "slow_backend.py").write_text(f"{source}\n")
    sys.modules.pop("slow_backend", None)
    with pytest.raises(NotInstalledError) as raised:
        registry.library("slow")
    assert raised.value.what == f"the backend 'slow' {what}"
    assert raised.value.why == why
    assert raised.value.hint == "update the package that registers 'slow_backend:BACKEND', or remove it"


@pytest.mark.parametrize("does", ["os._exit(1)", "time.sleep(60)"])
def test_an_import_that_crashes_or_hangs_ends_nothing(
    does: str, installed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "_broken", {})
    (tmp_path / "slow_backend.py").write_text(f"import os, time\n{does}\n")
    with process.asking_apart() as other:
        assert not other.ask(Import("nobody")).ended  # it has started, and has imported the compiler
        monkeypatch.setattr(other.session, "_patience", 1.0)
        (line,) = context.resolve(backends=["slow", "cpu", "onnxruntime"]).skipped
        with pytest.raises(TargetError, match="'c' is not available") as raised:
            context.resolve("c")
    assert line.startswith("the backend 'slow' cannot be imported and runs nothing: it crashed or hung while another")
    assert "the backend 'slow' cannot be imported: it crashed or hung" in raised.value.why


@pytest.mark.usefixtures("installed")
def test_where_no_other_process_can_start_it_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process._held, "other", None)
    monkeypatch.setattr(process, "_COMMAND", "raise SystemExit(1)")
    monkeypatch.setattr(imports, "_broken", {})
    (line,) = context.resolve(backends=["slow", "cpu", "onnxruntime"]).skipped
    assert "cannot be imported and runs nothing: it could not be tried in another process" in line
    assert imports._broken == {}


def test_a_kind_that_nobody_writes_kernels_for() -> None:
    with pytest.raises(fusion.FusionError, match="'c' is not available"):
        fusion.compile(small_models.mlp(), "c")


def test_a_cpu_imports_nothing_of_cuda() -> None:
    code = "import sys, fusion; fusion.compile; from backends.registry import backend_for; backend_for('llvm'); "
    code += "assert not any(name.startswith('backends.cuda') for name in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
