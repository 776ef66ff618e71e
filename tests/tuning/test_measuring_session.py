"""The process that measures may crash, hang or not start, and nothing else ends."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.tuning.kernels import ShortWithSome
from tuning.decide import Decision
from tuning.experiment import Experiment, LibraryCall, Step, StepCondition, Storage, View, read_experiment
from tuning.measuring_session import MeasuringSession
from tuning.messages import (
    Comparing,
    Failed,
    MeasuredNetwork,
    Question,
    Trial,
    Trying,
    read_answer,
    read_question,
    write_answer,
    write_question,
)

ANSWER = "print(write_answer(MeasuredNetwork((Decision(0, 1.0, 1.0, 2),), 2.0, 1.0)), flush=True)"
NOTHING = "print(write_answer(MeasuredNetwork((), 0.0, 0.0)), flush=True)"
TRIES = """
import os, sys, time
from tuning.messages import Decision, MeasuredNetwork, Trial, Trying, read_question, write_answer
for line in sys.stdin:
    for trial in (Trial(0, 0), Trial(0, 1), Trial(0, 2)):
        if trial not in read_question(line).skipped:
            print(write_answer(Trying(trial)), flush=True)
            if trial.candidate in BAD: ACT
"""


def experiment() -> Experiment:
    step = Step(0, tuple((LibraryCall(f"f{candidate}", (0,)),) for candidate in range(3)), (StepCondition(0, True),))
    return Experiment(("library",), "", (Storage(4, filler=1),), (View(0, (1,), "float32"),), (step,), 1, 0.1)


def program(bad: tuple[int, ...], act: str) -> str:
    return TRIES.replace("BAD", str(bad)).replace("ACT", act) + f"    {ANSWER}\n"


def test_experiments_pass_through_files(tmp_path: Path) -> None:
    experiment().write(tmp_path / "e.json")
    assert read_experiment(tmp_path / "e.json") == experiment()


def test_messages_pass_through_lines() -> None:
    decision = Decision(1, 1.0, 2.0, 2)
    for answer in (Trying(Trial(0, 1)), Comparing(), MeasuredNetwork((decision,), 2.0, 1.0), Failed("why")):
        assert read_answer(write_answer(answer)) == answer
    question = Question("path", (Trial(0, 1), Trial(2, 3)))
    assert read_question(write_question(question)) == question


@pytest.mark.parametrize("act", ["os.abort()", "time.sleep(600)"])
def test_a_candidate_that_crashes_or_hangs_is_left_out(tmp_path: Path, act: str) -> None:
    with ShortWithSome(tmp_path, program((1, 2), act)) as bench:
        bench.hanging = (Trial(0, 1), Trial(0, 2)) if "sleep" in act else ()
        results = bench.run(experiment())
    assert results.crashed == [Trial(0, 1), Trial(0, 2)]
    assert (results.before, results.after, len(results.decisions)) == (2.0, 1.0, 1)


def test_a_default_that_crashes_ends_the_experiment(tmp_path: Path) -> None:
    with MeasuringSession(tmp_path, program((0,), "os.abort()")) as bench:
        results = bench.run(experiment())
    assert "ended" in results.failure
    assert not results.decisions


def test_a_worker_that_does_not_start_is_no_error(tmp_path: Path) -> None:
    with MeasuringSession(tmp_path, "raise SystemExit(1)") as bench:
        assert "ended" in bench.run(experiment()).failure


def test_an_answer_that_decides_nothing_is_asked_for_once(tmp_path: Path) -> None:
    with MeasuringSession(tmp_path, TRIES.replace("BAD", "()").replace("ACT", "pass") + f"    {NOTHING}\n") as bench:
        assert bench.run(experiment()).failure == "nothing was measured"


def test_a_question_that_is_interrupted_is_not_answered_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = tmp_path / "started"

    def interrupt(_: float) -> None:
        while not started.exists() or not started.read_text():  # it is made before it is written
            time.sleep(0.01)
        raise KeyboardInterrupt

    with MeasuringSession(tmp_path, "open('started', 'a').write('x')\n" + program((), "pass")) as bench:
        with monkeypatch.context() as patched:
            patched.setattr(bench, "_answer", interrupt)
            with pytest.raises(KeyboardInterrupt):
                bench.run(experiment())
        bench.run(experiment())
    assert started.read_text() == "xx"


def test_what_the_worker_cannot_do_it_says(tmp_path: Path) -> None:
    with MeasuringSession(tmp_path) as bench:
        assert "library" in bench.run(experiment()).failure
        assert "library" in bench.run(experiment()).failure, "the same process answers again"


@pytest.mark.parametrize(
    "worker", ["tuning.worker", "fusion.placing.worker", "fusion.apart.answer, fusion.apart.openings"]
)
def test_a_worker_starts_without_the_compiler(worker: str) -> None:
    code = f"import {worker}, sys; print(*sorted({{'tvm', 'torch'}} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
