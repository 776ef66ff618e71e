"""`make check` takes the tests nearest to a change, in time, and says what it left out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.nearest.choose import CORE, changed_files, nearest_tests

ROOT = Path(__file__).parents[2]
TREE = {
    "fusion/passes/fold.py": "",
    "fusion/passes/layout/lanes.py": "",
    "backends/cpu/emit.py": "",
    "docs/limits.md": "",
    "tests/passes/graphs.py": "from fusion.passes import fold",
    "tests/passes/test_all.py": "import fusion",
    "tests/passes/test_lanes.py": "import fusion",
    "tests/frontends/onnx_models/test_first.py": "import fusion",
    "tests/frontends/test_import.py": "",
    "tests/frontends/test_second.py": "import fusion",
    "tests/backends/cpu/kernels/test_spaces.py": "import fusion",
    "tests/module/test_run.py": "def test() -> None:\n    from fusion.passes import fold",
    "tests/report/test_limits_page.py": "PAGE = 'docs/limits.md'",
    "tests/regressions/test_fold.py": "import fusion",
    "tests/regressions/test_graphs.py": "from tests.passes.graphs import make",
}


@pytest.mark.parametrize(
    ("changed", "near"),
    [
        ([], []),
        (["README.md"], []),
        (["fusion/passes/fold.py"], ["module/test_run", "passes/test_all", "passes/test_lanes"]),
        (["fusion/passes/layout/lanes.py"], ["passes/test_lanes", "passes/test_all"]),
        (["fusion/passes/gone.py"], ["passes/test_all", "passes/test_lanes"]),
        (["backends/cpu/emit.py"], ["backends/cpu/kernels/test_spaces"]),
        (["fusion/frontends/dispatch.py"], ["frontends/test_second", "frontends/onnx_models/test_first"]),
        (["docs/limits.md"], ["report/test_limits_page"]),
        (["tests/passes/graphs.py"], ["regressions/test_graphs", "passes/test_all", "passes/test_lanes"]),
        (["tests/module/test_run.py", "tests/module/test_gone.py"], ["module/test_run"]),
        (["fusion/passes/fold.py", "docs/limits.md", "tests/passes/test_all.py"], [
            "passes/test_all", "module/test_run", "report/test_limits_page", "passes/test_lanes",
        ]),
    ],
)  # fmt: skip
def test_nearest_come_first(tmp_path: Path, changed: list[str], near: list[str]) -> None:
    _write(tmp_path, TREE)
    assert nearest_tests(tmp_path, changed) == [*CORE, *(f"tests/{name}.py" for name in near)]


def test_the_core_exists() -> None:
    assert all((ROOT / test).is_file() for test in CORE)


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
def test_what_a_branch_changes(tmp_path: Path) -> None:
    _write(tmp_path, {"kept.py": "", "committed.py": "", "edited.py": "", "gone.py": "", ".gitignore": "out"})
    _git(tmp_path, "init", "--quiet", "--initial-branch=main")
    _commit(tmp_path)
    _git(tmp_path, "checkout", "--quiet", "-b", "change")
    _write(tmp_path, {"committed.py": "1"})
    (tmp_path / "gone.py").unlink()
    _commit(tmp_path)
    _git(tmp_path, "checkout", "--quiet", "main")
    _write(tmp_path, {"by_others.py": ""})
    _commit(tmp_path)
    _git(tmp_path, "checkout", "--quiet", "change")
    _write(tmp_path, {"edited.py": "1", "new ü.py": "", "out": ""})
    assert changed_files(tmp_path, "main") == ["committed.py", "edited.py", "gone.py", "new ü.py"]
    with pytest.raises(subprocess.CalledProcessError):
        changed_files(tmp_path, "unknown")


def test_what_would_end_too_late_is_left_out_and_named(tmp_path: Path) -> None:
    _write(tmp_path, {"test_some.py": "def test_short(): ...\ndef test_long(): ...", "pytest.ini": "[pytest]"})
    assert "2 passed" in _run_bounded(tmp_path)
    seconds = tmp_path / ".pytest_cache/v/nearest/seconds"
    took = json.loads(seconds.read_text())
    assert took.keys() == {"test_some.py::test_short", "test_some.py::test_long"}
    seconds.write_text(json.dumps(took | {"test_some.py::test_long": 1000}))
    said = _run_bounded(tmp_path)
    assert "1 passed, 1 skipped" in said
    assert "1 of test_some.py" in said
    assert json.loads(seconds.read_text())["test_some.py::test_long"] == 1000


def _write(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def _git(root: Path, *words: str) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=root, check=True)


def _commit(root: Path) -> None:
    _git(root, "add", "--all")
    _git(root, "commit", "--quiet", "--message", "change")


def _run_bounded(folder: Path) -> str:
    bound = ("-p", "tests.nearest.bounded", "--for-seconds", "500")
    command = (sys.executable, "-m", "pytest", *bound, "--rootdir", folder, folder)
    quickly = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=quickly)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
