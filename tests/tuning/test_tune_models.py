"""`fusion.tune` and `fusion tune MODEL...`: what is measured is kept, shared by models, and not measured again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from tvm import relax

import fusion
from fusion import measuring
from fusion.cli import main
from fusion.errors import OptionError, ShapeError
from fusion.model_tuning import run
from fusion.model_tuning.tuning import Tuning
from fusion.module.random_inputs import random_inputs
from fusion.system import cpu_load
from tests.backends.cpu.kernels.anchored import normal
from tests.cli.commands import run_json
from tests.module import small_models
from tests.passes.modules import module
from tests.tuning.test_balanced import apart, times_of
from tuning import measuring_session, network_bench, tuned_network
from tuning.build import Named
from tuning.database import Database
from tuning.decide import CandidateTimes, Decision
from tuning.experiment import Experiment
from tuning.limits import Limits
from tuning.measuring_session import MeasuringSession, Results
from tuning.network_times import NetworkTimes
from tuning.record import Record, read_lines
from tuning.task import KERNEL, NETWORK

Stop = Callable[[Tuning], None]


class Pretending(MeasuringSession):
    """Does not measure: the last candidate for each kernel is the fastest."""

    experiments: list[Experiment]

    def run(self, experiment: Experiment) -> Results:
        self.experiments.append(experiment)
        counts = experiment.candidate_counts()
        decisions = [Decision(count - 1, 1e-6, 2e-6, count, times_of(count)) for count in counts]
        return Results(decisions, 2e-3, 1e-3)


@pytest.fixture
def experiments(monkeypatch: pytest.MonkeyPatch) -> list[Experiment]:
    """What was asked of the session."""
    monkeypatch.setattr(Pretending, "experiments", [], raising=False)
    for place in (run, measuring):
        monkeypatch.setattr(place, "SEARCHED", Limits(points=3))
    monkeypatch.setattr(network_bench, "build_library", lambda kernels, *_: {name for name, _ in kernels})
    monkeypatch.setattr(measuring_session, "MeasuringSession", Pretending)
    monkeypatch.setattr(cpu_load, "others_load", lambda: 0.0)
    return Pretending.experiments


def model() -> tvm.IRModule:
    return module(apart, [normal((1, 32, 12, 12), 0)])


def deeper() -> tvm.IRModule:
    """Both convolutions of `model`, and something behind them."""

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        made, between = apart(b, x).fields
        return relax.Tuple([b.emit(relax.op.tanh(made)), between])

    return module(build, [normal((1, 32, 12, 12), 0)])


def tune(models: object, database: Path, stop: Stop = lambda state: None) -> Tuning:
    return fusion.tune(models, threads=2, budget="10m", database=database, on_progress=stop)


def records(database: Path, kind: str) -> list[Record]:
    return [each for each in read_lines(Database(database).lines()).records if each.task.kind == kind]


def tiles(compiled: fusion.CompiledModule) -> list[str]:
    return [info.tile for info in compiled.specializations[0].kernels.values()]


def test_a_second_call_measures_nothing_and_compile_takes_what_was_found(
    tmp_path: Path, experiments: list[Experiment]
) -> None:
    first = tune(model(), tmp_path / "records")
    assert first.points > 3
    assert len(records(tmp_path / "records", NETWORK)) == 1, "the network was run before and after"
    asked, lines = len(experiments), Database(tmp_path / "records").lines()

    second = tune(model(), tmp_path / "records")
    assert (len(experiments), second.points, second.rounds) == (asked, 0, 0)
    assert Database(tmp_path / "records").lines() == lines
    assert second.models[0].times == first.models[0].times
    assert "no more to gain is expected" in str(second)

    compiled = fusion.compile(model(), threads=2, database=tmp_path / "records")
    usual = fusion.compile(model(), threads=2, database=False)
    assert tiles(compiled) == tiles(second.models[0].module) != tiles(usual)
    searched = fusion.compile(model(), threads=2, effort="max", database=tmp_path / "records")
    assert tiles(searched) == tiles(compiled), "it is the same job"


def test_models_of_a_job_share_what_they_have_in_common(tmp_path: Path, experiments: list[Experiment]) -> None:
    both = tune([model(), deeper()], tmp_path / "both")
    assert [each.name for each in both.models] == ["model 1", "model 2"]
    alone = [tune(each, tmp_path / name) for name, each in (("one", model()), ("other", deeper()))]
    assert both.points < sum(each.points for each in alone)
    tasks = {each.task.key for each in records(tmp_path / "both", KERNEL)}
    assert tasks == {each.task.key for name in ("one", "other") for each in records(tmp_path / name, KERNEL)}


def test_an_interrupt_keeps_what_was_measured_and_the_next_call_goes_on(
    tmp_path: Path, experiments: list[Experiment], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "SEARCHED", Limits(points=3, together=2))

    def stop(state: Tuning) -> None:
        if state.rounds:
            raise KeyboardInterrupt

    first = tune(model(), tmp_path / "records", stop)
    assert (first.interrupted, first.rounds, first.points) == (True, 1, 2)
    assert "goes on there" in str(first)
    assert first.models[0].times is not None
    assert not first.models[0].times.is_clear or first.models[0].times.after < first.models[0].times.before
    feeds = random_inputs(first.models[0].module.inputs)
    usual = fusion.compile(model(), threads=2, database=False).run(feeds)
    for name, found in first.models[0].module.run(feeds).items():
        np.testing.assert_allclose(found, usual[name], rtol=1e-4, atol=1e-6)

    kept = {(each.task.key, str(each.point)) for each in records(tmp_path / "records", KERNEL)}
    second = tune(model(), tmp_path / "records")
    whole = tune(model(), tmp_path / "whole")
    assert not second.interrupted
    assert second.points == whole.points - first.points
    assert kept < {(each.task.key, str(each.point)) for each in records(tmp_path / "records", KERNEL)}


@pytest.mark.parametrize(("later", "stays"), [(1.04, True), (1.2, False)])
def test_a_best_point_outlasts_rounds_in_which_nothing_wins(
    tmp_path: Path, experiments: list[Experiment], monkeypatch: pytest.MonkeyPatch, later: float, stays: bool
) -> None:
    """It was 10% faster, and is measured again beside others: 4% of noise every other time do not end it, 20% do."""
    monkeypatch.setattr(run, "SEARCHED", Limits(points=6))
    decisions = 0

    def measured(self: Pretending, experiment: Experiment) -> Results:
        nonlocal decisions
        self.experiments.append(experiment)
        counts = experiment.candidate_counts()
        first, again, decisions = not decisions, later if decisions % 2 else 0.95, decisions + 1
        ratios = [(0.9 if first else again) if place == 1 else 1.1 for place in range(max(counts))]
        times = [CandidateTimes(place, ratio * 1e-6, 0.0, 20, 1e-6) for place, ratio in enumerate([1.0, *ratios[1:]])]
        made = [Decision(int(first and count > 1), 1e-6, 1e-6, count, tuple(times[:count])) for count in counts]
        return Results(made, 2e-3, 1e-3)

    monkeypatch.setattr(Pretending, "run", measured)
    tuning = tune(model(), tmp_path / "records")
    assert tuning.rounds > 1
    assert any(each.wins for each in records(tmp_path / "records", KERNEL)) is stays


def test_a_busy_machine_is_waited_for_and_told(
    tmp_path: Path, experiments: list[Experiment], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_load, "others_load", lambda: 1.0)
    monkeypatch.setattr(tuned_network, "BUSY", 0.0)
    monkeypatch.setattr(run, "_WAITING", 0.0)
    tuning = tune(model(), tmp_path / "records")
    assert tuning.busy == tuning.rounds > 0
    assert "while others used the machine" in str(tuning)
    assert not records(tmp_path / "records", NETWORK), "what a network took beside others is not kept"


def test_without_time_nothing_is_measured(tmp_path: Path, experiments: list[Experiment]) -> None:
    tuning = fusion.tune(model(), threads=2, budget=0, database=tmp_path / "records")
    assert (experiments, tuning.points) == ([], 0)
    assert "what it takes was not measured" in str(tuning)


def test_building_ends_with_the_budget(
    tmp_path: Path, experiments: list[Experiment], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of what candidates are compared with, before any of them."""
    began = time.monotonic()

    def build(kernels: Iterable[Named], toolchain: object, path: Path, over: Callable[[], bool]) -> set[str]:
        while not over():
            assert time.monotonic() < began + 60.0
            time.sleep(0.01)
        return set()

    monkeypatch.setattr(network_bench, "build_library", build)
    tuning = fusion.tune(model(), threads=2, budget=3.0, database=tmp_path / "records")
    assert (experiments, tuning.points, tuning.models[0].note) == ([], 0, "")


def test_the_report_shows_models_families_and_forecasts(tmp_path: Path, experiments: list[Experiment]) -> None:
    tuning = tune([model(), deeper()], tmp_path / "records")
    tuning.explain_html(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "://" not in text.replace("http://www.w3.org", ""), "it needs nothing else"
    parts = ("<h3>model 1: 2.000 ms", "<title>conv2d</title>", "error of the search", "→", "building", *tuning.lines())
    assert [part for part in parts if part not in text] == []
    tune(model(), tmp_path / "records").explain_html(tmp_path / "again.html")
    again = (tmp_path / "again.html").read_text()
    assert "No point was measured by this run" in again
    assert "→" in again
    ended = tune(model(), tmp_path / "others", _stop)
    with pytest.raises(OptionError, match="cannot write"):
        ended.explain_html(tmp_path / "no folder" / "report.html")


def _stop(state: Tuning) -> None:
    raise KeyboardInterrupt


def test_the_command_prints_each_model_and_how_to_go_on(
    tmp_path: Path, experiments: list[Experiment], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = []
    for name, made in (("mlp", small_models.mlp(8)), ("two", small_models.two_layers())):
        paths.append(tmp_path / f"{name}.onnx")
        onnx.save(made, paths[-1])
    arguments = ["tune", *paths, "--db", tmp_path / "records", "--threads", 2, "--report", tmp_path / "r.html"]
    code, data = run_json(capsys, *arguments)
    assert code == 0
    assert [each["name"] for each in data["models"]] == ["mlp", "two"]
    assert (tmp_path / "r.html").exists()
    monkeypatch.setattr(run.TuningRun, "_measure", lambda *_: _stop(data))
    assert main([*map(str, arguments[:-2])]) == 130
    out = capsys.readouterr().out
    assert f"to go on: fusion tune {paths[0]} {paths[1]} --db {tmp_path / 'records'} --threads 2" in out


def test_ctrl_c_ends_the_command_with_what_it_has(tmp_path: Path) -> None:
    """Nothing is pretended here."""
    onnx.save(small_models.mlp(64), tmp_path / "mlp.onnx")
    code = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell may ignore it
    code += "from fusion.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "tune", "mlp.onnx", "--db", "records", "--budget", "1h"]
    with subprocess.Popen(
        command, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as process:  # fmt: skip
        assert process.stderr is not None
        for line in process.stderr:
            if "left at most" in line:
                process.send_signal(signal.SIGINT)
                break
        out, error = process.communicate()
    if "to use it" not in out:  # a search that was over before the signal came
        assert (process.returncode, "to go on: fusion tune mlp.onnx" in out) == (130, True), error
    assert Database(tmp_path / "records").lines() is not None
    left = {path.name.partition("-")[0] for path in tmp_path.iterdir()}
    assert left <= {"mlp.onnx", "records"}, left


def test_what_is_within_the_noise_is_no_gain() -> None:
    def times(spread: float, seconds: float, candidate: int = 0) -> NetworkTimes:
        default = CandidateTimes(0, 1.0, spread, 20, 1.0)
        found = NetworkTimes.of_decision(
            Decision(candidate, 1.0, 1.0, 2, (default, CandidateTimes(1, seconds, spread, 20, 1.0)), uses=3)
        )
        assert found is not None
        return found

    assert times(0.01, 0.9) == NetworkTimes(3.0, pytest.approx(2.7), pytest.approx(0.03), 20, is_clear=True)
    assert times(0.1, 0.95, candidate=1).is_clear, "faster in every block, while the machine's speed drifts"
    assert not times(0.1, 0.95).is_clear
    assert not times(0.0, 0.5).is_clear, "of one block nobody knows the noise"
    assert NetworkTimes.of_decision(Decision(0, 1.0, 1.0, 2)) is None


def test_what_cannot_be_tuned_is_an_error(tmp_path: Path) -> None:
    def refused(models: object, **options: object) -> None:
        fusion.tune(models, **{"database": tmp_path / "records", "budget": 0, **options})  # type: ignore[arg-type]

    with pytest.raises(OptionError, match="no model to tune"):
        refused([])
    with pytest.raises(OptionError, match="no place"):
        refused(model(), database=False)
    (tmp_path / "text").write_text("no database")
    with pytest.raises(OptionError, match="cannot be used"):
        refused(model(), database=tmp_path / "text")
    with pytest.raises(ShapeError, match="one size of each dimension"):
        refused(small_models.mlp("n"))
    with pytest.raises(ShapeError, match="nobody"):
        refused(model(), shapes={"nobody": (1, 2)})
    with pytest.raises(ShapeError, match="no open dimension has the name 'm'"):
        refused(small_models.mlp("n"), shapes={"x": (4, 8)}, bounds={"m": range(1, 9)})
    with pytest.raises(ShapeError, match="a size is out of bounds"):
        refused(small_models.mlp("n"), shapes={"x": (9, 8)}, bounds={"n": range(1, 9)})
    with pytest.raises(OptionError, match="not this machine"):
        refused(model(), target="llvm -mcpu=haswell")
    assert main(["tune", "--machine", "some.onnx"]) == 2
    assert main(["tune", str(tmp_path / "nothing.onnx")]) == 2
