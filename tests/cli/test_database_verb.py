"""`fusion database` shows what was measured, and brings it from one file to another."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusion.cli.exit_codes import USAGE
from tests.cli.commands import run, run_json
from tests.tuning.records import record, task
from tuning.database import Database
from tuning.record import Record


def test_show_export_and_import(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = tmp_path / "first.sqlite", tmp_path / "second.sqlite"
    Database(first).add([record(task("a"), 1), record(task("a"), 2), record(task("b"), 1)])
    code, data = run_json(capsys, "database", "--db", first)
    assert (code, data["records"], data["kernels"], data["damaged"]) == (0, 3, 2, 0)
    assert data["families"] == {"conv2d": 2}
    assert data["places"] == {"a CPU, 2 threads": 2}
    code, text, _ = run(capsys, "database", "--db", first)
    assert (code, str(first) in text, "2 conv2d" in text) == (0, True, True)
    assert run(capsys, "database", "export", tmp_path / "lines", "--db", first)[0] == 0
    lines = (tmp_path / "lines").read_text().splitlines()
    (tmp_path / "lines").write_text("\n".join([lines[0], lines[1][:50], *lines[2:]]))
    Database(second).add([Record.from_line(lines[0])])
    code, data = run_json(capsys, "database", "import", tmp_path / "lines", "--db", second)
    assert (code, data["records"], data["new"], data["damaged"]) == (0, 2, 1, 1)
    assert set(Database(second).lines()) == {lines[0], lines[2]}
    code, text, _ = run(capsys, "database", "import", tmp_path / "lines", "--db", second)
    assert (code, "0 records of" in text, "1 damaged" in text) == (0, True, True)


def test_what_cannot_be_used_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    code, data = run_json(capsys, "database", "--db", tmp_path / "none")
    assert (code, data["records"]) == (0, 0)
    assert not (tmp_path / "none").exists()
    for arguments, word in {
        ("export",): "no file is named",
        ("export", tmp_path / "file" / "x"): "Not a directory",
        ("import", tmp_path / "none"): "No such file",
    }.items():
        code, _, err = run(capsys, "database", *arguments, "--db", tmp_path / "d")
        assert (code, word in err) == (USAGE, True)
    assert run_json(capsys, "database") == (0, {"path": None})


def test_a_saved_module_takes_no_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.fusion").write_bytes(b"")
    code, _, err = run(capsys, "run", tmp_path / "m.fusion", "--db", tmp_path / "d")
    assert (code, "--db has no use" in err) == (USAGE, True)
