"""Candidates that crash, hang, take all memory or write without end cost nothing but themselves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.tuning.bad_candidates import tune_bad_candidates
from tests.tuning.kernels import ShortWithCandidates, ShortWithSome, build_kernels, experiment_of
from tuning.database import Database
from tuning.measuring_session import Results
from tuning.messages import Trial
from tuning.record import read_lines


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_kernels(tmp_path_factory.mktemp("kernels"))


def run(library: Path, folder: Path, names: list[str]) -> Results:
    with ShortWithSome(folder) as session:
        session.hanging = tuple(Trial(0, place) for place, name in enumerate(names) if name == "hangs")
        results = session.run(experiment_of(library, names))
        assert session._process is not None
        number = session._process.pid
    with pytest.raises(ProcessLookupError):
        os.killpg(number, 0)
    return results


@pytest.mark.parametrize("bad", ["crashes", "faults", "hangs", "grows"])
def test_a_candidate_that_fails_is_told_and_nothing_is_left(library: Path, tmp_path: Path, bad: str) -> None:
    results = run(library, tmp_path, ["good", bad, "good"])
    assert results.crashed == [Trial(0, 1)]
    assert not results.failure
    assert {times.candidate for times in results.decisions[0].times} == {0, 2}
    assert [path.name for path in tmp_path.iterdir()] == ["experiment.json"]


def test_what_a_candidate_writes_is_no_answer(library: Path, tmp_path: Path) -> None:
    results = run(library, tmp_path, ["good", "writes"])
    assert (results.crashed, results.failure) == ([], "")
    assert len(results.decisions[0].times) == 2


def test_a_job_ends_and_never_tries_them_again(tmp_path: Path) -> None:
    database = Database(tmp_path / "records")
    job = tune_bad_candidates(database, ShortWithCandidates)
    assert job.holds, job
    records = read_lines(database.lines()).records
    assert sum(record.failed for record in records) == job.failed
    again = tune_bad_candidates(database, ShortWithCandidates)
    assert (again.failed, again.measured) == (0, 0)
