"""`database=`: what was measured once is not measured again, by the same model or another, and is never an error."""

from __future__ import annotations

import logging
import re
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax

import fusion
from fusion import measuring
from fusion.cache import build_versions
from fusion.module.random_inputs import random_inputs
from tests.backends.cpu.kernels.anchored import normal
from tests.passes.modules import Build, module
from tests.tuning.test_balanced import apart, times_of
from tuning import known, measuring_session, network_bench, tuned_network
from tuning.database import Database
from tuning.decide import Decision
from tuning.experiment import Experiment
from tuning.limits import Limits
from tuning.measuring_session import MeasuringSession, Results
from tuning.record import Record, read_lines

pytestmark = pytest.mark.unoptimised


class Pretends(MeasuringSession):
    """Does not measure: the last candidate for each kernel is the fastest."""

    asked: list[int]
    """Candidates in all of each experiment."""
    left: list[float]
    """The time for it."""

    def run(self, experiment: Experiment) -> Results:
        counts = experiment.candidate_counts()
        self.asked.append(sum(counts) - len(counts))
        self.left.append(experiment.seconds)
        decisions = [Decision(count - 1, 1e-6, 2e-6, count, times_of(count)) for count in counts]
        return Results(decisions, 2e-3, 1e-3)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many candidates each experiment has compared, beside the first of each kernel."""
    monkeypatch.setattr(Pretends, "asked", [], raising=False)
    monkeypatch.setattr(Pretends, "left", [], raising=False)
    monkeypatch.setattr(measuring, "_BALANCED", Limits(points=3))
    monkeypatch.setattr(network_bench, "build_library", lambda kernels, *_: {name for name, _ in kernels})
    monkeypatch.setattr(measuring_session, "MeasuringSession", Pretends)
    return Pretends.asked


def compile_with(database: object, effort: str = "balanced", build: Build = apart) -> fusion.CompiledModule:
    return fusion.compile(module(build, [normal((1, 32, 12, 12), 0)]), effort=effort, threads=2, database=database)


def tiles(compiled: fusion.CompiledModule) -> list[str]:
    return [info.tile for info in compiled.specializations[0].kernels.values()]


def code(compiled: fusion.CompiledModule, path: Path) -> dict[str, bytes]:
    """Return what `save` writes, but for the notes of what was measured when."""
    compiled.save(path)
    with zipfile.ZipFile(path) as saved:
        return {name: saved.read(name) for name in saved.namelist() if not name.endswith(".json")}


def test_a_second_compilation_measures_nothing_and_has_the_same_code(tmp_path: Path, asked: list[int]) -> None:
    first, second, third = (compile_with(tmp_path / "records") for _ in range(3))
    assert len(asked) == 1
    assert asked[0] > 2
    assert "measured before" not in first.explain()
    assert "kernels are as measured before" in second.explain()
    assert tiles(first) == tiles(second) != tiles(compile_with(False, "fast"))
    assert code(first, tmp_path / "1.fusion") == code(second, tmp_path / "2.fusion")
    second.save(tmp_path / "2.fusion")
    third.save(tmp_path / "3.fusion")
    assert (tmp_path / "2.fusion").read_bytes() == (tmp_path / "3.fusion").read_bytes()
    feeds = random_inputs(first.inputs)
    np.testing.assert_array_equal(*(next(iter(each.run(feeds).values())) for each in (first, third)))


def test_what_was_measured_for_a_model_serves_another(tmp_path: Path, asked: list[int]) -> None:
    def deeper(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        made, between = apart(b, x).fields
        return relax.Tuple([b.emit(relax.op.tanh(made)), between])

    compile_with(tmp_path / "records")
    of_both = asked[0]
    compile_with(tmp_path / "records", build=deeper)
    alone = asked[1] if len(asked) > 1 else 0
    assert alone < of_both, "the convolutions are known: unknown, they take as much again, and the tanh more"
    assert "kernels are as measured before" in compile_with(tmp_path / "records", build=deeper).explain()


def test_fast_measures_nothing_and_takes_what_a_named_database_has(tmp_path: Path, asked: list[int]) -> None:
    usual = compile_with(False, "fast")
    assert tiles(compile_with(tmp_path / "records", "fast")) == tiles(usual)
    balanced = compile_with(tmp_path / "records")
    fast = compile_with(tmp_path / "records", "fast")
    assert len(asked) == 1
    assert tiles(fast) == tiles(balanced) != tiles(usual)
    assert code(fast, tmp_path / "1.fusion") == code(balanced, tmp_path / "2.fusion")
    assert tiles(compile_with(None, "fast")) == tiles(usual)


def test_fast_without_a_database_looks_for_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the user's folder has one."""
    monkeypatch.setenv("FUSION_CACHE_SIZE", "1G")
    monkeypatch.setenv("FUSION_CACHE", str(tmp_path))
    monkeypatch.setattr(Database, "find", None)
    compile_with(None, "fast")
    assert not (tmp_path / "tuning").exists()


def test_balanced_keeps_what_it_measures_in_the_user_s_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[int]
) -> None:
    monkeypatch.setenv("FUSION_CACHE_SIZE", "1G")
    monkeypatch.setenv("FUSION_CACHE", str(tmp_path))
    for build in (apart, lambda b, x: relax.Tuple([*apart(b, x).fields, x])):
        compile_with(None, build=build)  # another model: the cache of forms has none
    assert len(asked) == 1
    assert Database(tmp_path / "tuning" / "records.sqlite").lines()


def test_the_cache_of_forms_asks_what_a_named_database_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[int]
) -> None:
    monkeypatch.setenv("FUSION_CACHE_SIZE", "1G")
    monkeypatch.setenv("FUSION_CACHE", str(tmp_path / "cache"))
    usual = compile_with(tmp_path / "records", "fast")
    balanced = compile_with(tmp_path / "records")
    assert tiles(compile_with(tmp_path / "records", "fast")) == tiles(balanced) != tiles(usual)


def changed(database: Database, **change: Any) -> None:
    records = [replace(record, **change) for record in read_lines(database.lines()).records]
    database.path.unlink()
    database.add(records)


def test_points_that_are_not_in_the_space_are_ignored(tmp_path: Path, asked: list[int]) -> None:
    compile_with(tmp_path / "records")
    database = Database(tmp_path / "records")
    strange = [
        replace(record, point={"tile.height": 10**6}, seconds=1e-9)
        for record in read_lines(database.lines()).records
        if record.wins
    ]
    measured = tiles(compile_with(database))
    database.add(strange)
    assert tiles(compile_with(database)) == measured
    changed(database, wins=True, point={"nothing": 1})
    assert tiles(compile_with(database, "fast")) == tiles(compile_with(False, "fast"))


def test_rows_of_another_version_are_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[int]
) -> None:
    compile_with(tmp_path / "records")
    before = len(Database(tmp_path / "records").lines())
    monkeypatch.setattr(known, "kernel_versions", lambda: {"apache-tvm": "0.28"})
    compile_with(tmp_path / "records")
    assert len(asked) == 2
    assert len(Database(tmp_path / "records").lines()) == 2 * before


def test_what_was_not_built_in_time_is_measured_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[int]
) -> None:
    def build(kernels: Iterable[tuple[str, Any]], *given: Any) -> set[str]:
        names = [name for name, _ in kernels]
        if not names or "_" not in names[0]:
            return set(names)  # the defaults
        return set(names[:1]) if given[-1]() else set(names)

    monkeypatch.setattr(network_bench, "build_library", build)
    for seconds, emitting in ((-1.0, -1000.0), (100.0, 0.5), (100.0, 0.5)):
        monkeypatch.setattr(measuring, "_POINT_SECONDS", seconds)
        monkeypatch.setattr(tuned_network, "_EMITTING", emitting)
        compile_with(tmp_path / "records")
    compile_with(tmp_path / "others")
    late, again, fresh = asked  # the third time all is known
    assert (late, again) == (1, fresh)


def test_a_machine_that_is_too_busy_leaves_no_time(monkeypatch: pytest.MonkeyPatch, asked: list[int]) -> None:
    """What has begun to be built may take longer than all was to take: the wait for an answer was negative then."""
    monkeypatch.setattr(measuring, "_POINT_SECONDS", -100.0)
    monkeypatch.setattr(tuned_network, "_EMITTING", -1.0)  # until in 100 s
    compile_with(False)
    assert Pretends.left == [0.0]


class Refuses:
    """A store that can do nothing."""

    def find(self, keys: Sequence[str]) -> Sequence[Record]:
        raise RuntimeError("find")

    def add(self, records: Sequence[Record]) -> None:
        raise RuntimeError("add")

    def digest(self) -> str:
        raise RuntimeError("digest")


@pytest.mark.parametrize("effort", ["fast", "balanced"])
def test_a_store_that_fails_is_no_error(effort: str, asked: list[int], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="fusion.tuning"):
        compiled = compile_with(Refuses(), effort)
    told = {re.sub(r"^\d+ ", "", message) for message in caplog.messages}
    kept = {"measurements are not kept: add"} if effort == "balanced" else set()
    digest = "the database of measurements is not read: digest"
    assert told == {digest, "the database is not read: find", *kept}
    assert len(asked) == (effort == "balanced")
    takes_points = tiles(compiled) != tiles(compile_with(False, "fast"))
    assert takes_points == (effort == "balanced")


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path, asked: list[int]) -> None:
    (tmp_path / "file").write_text("")
    assert tiles(compile_with(tmp_path / "file" / "records")) != tiles(compile_with(False, "fast"))


def test_sources_that_changed_leave_the_database_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[int]
) -> None:
    def refuse() -> dict[str, str]:
        raise OSError("changed")

    monkeypatch.setattr(known, "kernel_versions", refuse)
    assert tiles(compile_with(tmp_path / "records")) != tiles(compile_with(False, "fast"))
    assert not (tmp_path / "records").exists()


def test_versions_are_those_of_what_writes_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(build_versions.kernel_versions()) == {"apache-tvm", "backends"}
    assert build_versions.kernel_versions()["backends"] != build_versions.build_versions()["sources"]
