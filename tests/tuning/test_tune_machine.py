"""`fusion.tune_machine` measures drawn kernels, keeps what it has, goes on there, and learns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

import fusion
from backends.tensorir.space import Point
from fusion import context
from fusion.cli import main
from fusion.errors import OptionError
from fusion.machine_tuning import tune
from fusion.machine_tuning.tune import MachineTuning
from fusion.options import read_budget
from fusion.system import cpu_load
from tuning.alone import measured_points
from tuning.database import Database
from tuning.known import KnownKernel
from tuning.record import Record


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tune, "_WORKLOADS", 9)
    monkeypatch.setattr(tune, "_POINTS", 2)
    monkeypatch.setattr(tune, "_RUNS", 2)
    monkeypatch.setattr(cpu_load, "others_load", lambda: 0.0)
    return tmp_path / "my.sqlite"


def test_what_is_measured_is_kept_and_not_measured_again(
    database: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(state: MachineTuning) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fusion.tune_machine(threads=1, budget="10m", database=database, on_progress=stop)
    kept = Database(database).lines()
    assert len(kept) > 8
    assert context.resolve(threads=1, database=database).model is None

    state = fusion.tune_machine(threads=1, budget=0, database=database)
    assert (state.new, state.kernels, state.points) == (0, 8, len(kept))
    assert Database(database).lines() == kept
    assert state.learned
    model = context.resolve(threads=1, database=database).model
    assert model is not None
    assert (model.kernels, model.errors) == (8, state.errors)

    assert main(["tune", "--machine", "--budget", "10m", "--threads", "1", "--db", str(database)]) == 0
    assert "1 of them measured" in capsys.readouterr().out
    model = context.resolve(threads=1, database=database).model
    assert model is not None
    assert model.kernels == 9

    failing: list[str] = []
    monkeypatch.setattr(tune, "measured_points", partial(all_but_the_first, failing))
    state = fusion.tune_machine(threads=1, budget=0, database=database)
    assert (state.new, state.kernels) == (0, 8), "a kernel that cannot be measured hides none"


def all_but_the_first(failing: list[str], known: KnownKernel, records: Sequence[Record]) -> list[tuple[Point, float]]:
    """Return what was measured of a kernel, nothing for the first that is asked about, which `failing` holds then."""
    key = known.task.key
    failing[:] = failing or [key]
    return [] if key in failing else measured_points(known, records)


def test_a_busy_machine_is_waited_for_and_told(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_load, "others_load", lambda: 1.0)
    monkeypatch.setattr(tune, "_WORKLOADS", 2)
    monkeypatch.setattr(tune, "_WAITING", 0.0)
    state = fusion.tune_machine(threads=1, budget=100, database=database)
    assert (state.new, state.busy) == (2, 2)


@pytest.mark.parametrize(("budget", "seconds"), [(0, 0), (1.5, 1.5), ("90s", 90), ("10m", 600), (" 1h", 3600)])
def test_budgets(budget: str | float, seconds: float) -> None:
    assert read_budget(budget) == seconds


@pytest.mark.parametrize("budget", ["", "m", "-1", "10 m", "25h", float("nan"), float("inf"), None, True, [1]])
def test_what_is_no_budget_is_an_error(budget: object) -> None:
    with pytest.raises(OptionError, match="no time"):
        fusion.tune_machine(budget=budget)  # type: ignore[arg-type]


def test_what_cannot_be_tuned_is_an_error(tmp_path: Path) -> None:
    assert main(["tune"]) == 2
    with pytest.raises(OptionError, match="not this machine"):
        fusion.tune_machine("llvm -mcpu=haswell", database=tmp_path / "my.sqlite")
    with pytest.raises(OptionError, match="no place"):
        fusion.tune_machine(database=False)
    (tmp_path / "text").write_text("no database")
    with pytest.raises(OptionError, match="cannot be used"):
        fusion.tune_machine(threads=1, budget=0, database=tmp_path / "text")
