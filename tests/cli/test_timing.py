"""What the command line says of the stages of a compilation."""

from __future__ import annotations

import contextvars
import sys
import threading
import time
from pathlib import Path

import onnx
import pytest

from fusion.cli import progress as progress_of_commands
from fusion.cli.progress import progress
from fusion.module import write_objects
from fusion.stages import Stages, stage
from tests.cli.commands import run, run_json
from tests.module import small_models


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(small_models.mlp(), tmp_path / "mlp.onnx")
    return tmp_path / "mlp.onnx"


def test_a_table_names_the_stages(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "compile", model, "--no-cache", "--timing")
    assert code == 0
    names = [line.split()[2:] for line in out.splitlines()[2:]]
    for expected in (["import"], ["passes"], ["machine", "code"]):
        assert expected in names
    assert names.index(["import"]) < names.index(["passes"]) < names.index(["machine", "code"])


def test_data_has_passes_and_what_several_threads_did(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(write_objects, "open_kernels", lambda ctx: None)  # other tests may have had the same code made
    code, data = run_json(capsys, "compile", model, "--no-cache", "--timing")
    assert code == 0
    stages = {tuple(taken["stage"]): taken for taken in data["timing"]}
    assert stages["passes", "schedule_kernels"]["count"] == 1
    assert stages["machine code", "LLVM"]["cpu_s"] > 0
    outermost = sum(taken["s"] for path, taken in stages.items() if len(path) == 1)
    assert 0.8 * data["compile_s"] < outermost <= data["compile_s"]


def test_without_it_nothing_is_said(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, data = run_json(capsys, "compile", model, "--no-cache")
    assert code == 0
    assert "timing" not in data


@pytest.mark.parametrize("terminal", [True, False])
def test_what_takes_long_says_its_stage(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress_of_commands, "_PATIENCE_S", 0.02)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    stages = Stages()
    with stages.watch(), progress("compiling m", lambda: stages.now):
        for name in ("import", "passes"):
            with stage(name):
                time.sleep(0.2)
    said = capsys.readouterr().err
    assert said.index("import") < said.index("passes") < said.rindex("compiling m")
    assert said.count("\n") == (1 if terminal else 3)


def test_stages_of_other_threads_and_of_none_are_not_taken() -> None:
    stages = Stages()
    with stage("nobody watches"):
        pass
    with stages.watch(), stage("one"), stage("two"):
        pass
    with stage("nobody watches any more"):
        pass
    assert list(stages.times) == [("one",), ("one", "two")]


def test_a_stage_has_the_cpu_time_of_what_other_threads_do_in_it() -> None:
    def work(context: contextvars.Context) -> None:
        context.run(_compute)

    stages = Stages()
    with stages.watch(), stage("outer"), stage("middle"):
        threads = [threading.Thread(target=work, args=(contextvars.copy_context(),)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    inner = stages.times["outer", "middle", "inner"]
    assert inner.count == 2
    assert 0.1 <= inner.cpu_seconds <= stages.times["outer", "middle"].cpu_seconds <= inner.cpu_seconds + 0.05
    assert inner.cpu_seconds <= stages.times[("outer",)].cpu_seconds


def _compute() -> None:
    with stage("inner"), stage("innermost"):
        began = time.thread_time()
        while time.thread_time() < began + 0.05:
            pass
