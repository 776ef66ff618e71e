"""The process that measures may crash, hang or not start, and nothing else ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuning import measuring_session
from tuning.experiment import Call, Experiment, Step, Storage, View, read_experiment
from tuning.measuring_session import MeasuringSession

VERDICT = '{"form": 0, "seconds": 1.0, "default_s": 1.0, "other_s": 2.0, "measured": 2}'
ANSWER = f'print(\'{{"verdicts": [{VERDICT}], "before": 2.0, "after": 1.0}}\', flush=True)'
TRIES = """
import json, os, sys, time
for line in sys.stdin:
    path, skipped = json.loads(line)
    for form in (0, 1, 2):
        if [0, form] not in skipped:
            print(json.dumps({"trying": [0, form]}), flush=True)
            if form in BAD: ACT
"""


def experiment() -> Experiment:
    step = Step(0, tuple((Call(f"f{form}", (0,)),) for form in range(3)), ((0, True),))
    return Experiment(("library",), "", (Storage(4, filler=1),), (View(0, (1,), "float32"),), (step,), 1, 0.1)


def program(bad: tuple[int, ...], act: str) -> str:
    return TRIES.replace("BAD", str(bad)).replace("ACT", act) + f"    {ANSWER}\n"


def test_experiments_pass_through_files(tmp_path: Path) -> None:
    experiment().write(tmp_path / "e.json")
    assert read_experiment(tmp_path / "e.json") == experiment()


@pytest.mark.parametrize("act", ["os.abort()", "time.sleep(60)"])
def test_a_form_that_crashes_or_hangs_is_left_out(tmp_path: Path, act: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring_session, "_PATIENCE_S", 0.6)
    with MeasuringSession(tmp_path, program((1, 2), act)) as bench:
        results = bench.run(experiment())
    assert results.crashed == [(0, 2), (0, 1)] or results.crashed == [(0, 1), (0, 2)]
    assert (results.before, results.after, len(results.verdicts)) == (2.0, 1.0, 1)


def test_a_default_that_crashes_ends_the_experiment(tmp_path: Path) -> None:
    with MeasuringSession(tmp_path, program((0,), "os.abort()")) as bench:
        results = bench.run(experiment())
    assert "ended" in results.failure
    assert not results.verdicts


def test_a_worker_that_does_not_start_is_no_error(tmp_path: Path) -> None:
    with MeasuringSession(tmp_path, "raise SystemExit(1)") as bench:
        assert "ended" in bench.run(experiment()).failure


def test_what_the_worker_cannot_do_it_says(tmp_path: Path) -> None:
    with MeasuringSession(tmp_path) as bench:
        assert "library" in bench.run(experiment()).failure
        assert "library" in bench.run(experiment()).failure, "the same process answers again"
