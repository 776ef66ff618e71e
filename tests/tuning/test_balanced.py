"""`effort="balanced"`: right results at measured points, and a report of what was measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from tvm import relax

import fusion
from fusion.module.random_inputs import random_inputs
from tests.backends.cpu.kernels.anchored import normal
from tests.frontends.models import branch, choose
from tests.module import small_models
from tests.passes.modules import Build, module
from tuning import measuring_session
from tuning.decide import CandidateTimes, Decision
from tuning.experiment import Experiment
from tuning.measuring_session import MeasuringSession, Results
from tuning.messages import Trial


def network(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    """A 3x3 convolution, which Winograd's method may take, twice the same, and a softmax."""
    weight = relax.const(normal((32, 32, 3, 3), 1) / np.float32(17))
    for _ in range(2):
        x = b.emit(relax.op.nn.relu(b.emit(relax.op.nn.conv2d(x, weight, 1, 1))))
    return relax.op.nn.softmax(x, -1)


def compile_network(effort: str, build: Build = network) -> fusion.CompiledModule:
    return fusion.compile(module(build, [normal((1, 32, 12, 12), 0)]), effort=effort, threads=2)


def test_kernels_are_measured_and_right(tmp_path: Path) -> None:
    balanced = compile_network("balanced")
    feeds = random_inputs(balanced.inputs)
    (expected,) = compile_network("fast").run(feeds).values()
    (got,) = balanced.run(feeds).values()
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)
    measured = [note for note in balanced.specializations[0].notes if note.startswith("measured ")]
    assert len(measured) == 1
    assert measured[0] in balanced.explain()
    balanced.save(tmp_path / "m.fusion")
    assert measured[0] in fusion.load(tmp_path / "m.fusion").explain()


def times_of(count: int) -> tuple[CandidateTimes, ...]:
    """Return times of candidates of which the last is the fastest."""
    return tuple(CandidateTimes(index, 1e-6 if index == count - 1 else 2e-6, 0.0, 20, 2e-6) for index in range(count))


class LastWins(MeasuringSession):
    """Does not measure: the last candidate for each kernel is the fastest, and the first beside the default crashes."""

    seen: list[Experiment]

    def run(self, experiment: Experiment) -> Results:
        self.seen.append(experiment)
        crashed = [Trial(0, 1)] if len(self.seen) == 1 else []
        decisions = []
        for kernel, count in enumerate(experiment.candidate_counts()):
            times = tuple(each for each in times_of(count) if Trial(kernel, each.candidate) not in crashed)
            decisions.append(Decision(count - 1, 1e-6, 2e-6, len(times), times))
        return Results(decisions, 2e-3, 1e-3, crashed)


def apart(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    """The network, whose convolutions share no kernel, as the image between is an output."""
    weight = relax.const(normal((32, 32, 3, 3), 1) / np.float32(17))
    between = b.emit(relax.op.nn.relu(b.emit(relax.op.nn.conv2d(x, weight, 1, 1))))
    made = b.emit(relax.op.nn.relu(b.emit(relax.op.nn.conv2d(between, weight, 1, 1))))
    return relax.Tuple([b.emit(relax.op.nn.softmax(made, -1)), between])


def test_the_candidate_that_wins_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LastWins, "seen", [], raising=False)
    monkeypatch.setattr(measuring_session, "MeasuringSession", LastWins)
    fast, balanced = (compile_network(effort, apart) for effort in ("fast", "balanced"))
    counts = list(map(max, *(experiment.candidate_counts() for experiment in LastWins.seen)))
    assert len(LastWins.seen[0].steps) > len(counts), "equal kernels are measured once, at all their places"
    assert max(counts) > 2
    before, after = ([info.tile for info in m.specializations[0].kernels.values()] for m in (fast, balanced))
    assert sum(mine != its for mine, its in zip(before, after, strict=True)) == sum(n > 1 for n in counts)
    feeds = random_inputs(fast.inputs)
    np.testing.assert_allclose(*(next(iter(m.run(feeds).values())) for m in (balanced, fast)), rtol=1e-4, atol=1e-6)
    text = balanced.explain()
    assert "failed when it was measured" in text
    assert "2.0 us by" in text


class NothingWorks(MeasuringSession):
    def run(self, experiment: Experiment) -> Results:
        return Results(failure="the process that measures ended")


def test_without_measurements_the_defaults_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring_session, "MeasuringSession", NothingWorks)
    fast, balanced = compile_network("fast"), compile_network("balanced")
    assert fast.specializations[0].kernels == balanced.specializations[0].kernels
    assert "no kernel was measured: the process that measures ended" in balanced.explain()


def test_without_a_linker_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusion.module.kernel_library.find_linker", lambda: None)
    assert "nothing was measured: no linker was found" in compile_network("balanced").explain()


def test_kernels_of_the_branch_that_a_run_takes_are_measured() -> None:
    """The other branch keeps its defaults; a fallback gives what only it knows."""
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal((64, 64)).astype(np.float32) / 8 for name in ("w1", "w2")}
    then = [helper.make_node("MatMul", ["x", "w1"], ["t"])]
    other = [helper.make_node("MatMul", ["x", "w2"], ["e0"]), helper.make_node("Tanh", ["e0"], ["e"])]
    nodes = [
        choose("c", ["b"], branch(then, ["t"], {}), branch(other, ["e"], {})),
        helper.make_node("Det", ["b"], ["d"]),
        helper.make_node("Add", ["b", "d"], ["y"]),
    ]
    inputs = [("c", small_models.BOOL, []), ("x", small_models.FLOAT, [64, 64])]
    model = small_models.model(nodes, inputs, [("y", small_models.FLOAT, [64, 64])], weights)
    balanced, fast = (fusion.compile(model, effort=effort, threads=2) for effort in ("balanced", "fast"))
    assert "measured " in balanced.explain()
    for condition in (True, False):
        feeds = {"c": np.array(condition), "x": rng.standard_normal((64, 64)).astype(np.float32)}
        np.testing.assert_allclose(balanced.run(feeds)["y"], fast.run(feeds)["y"], rtol=1e-4, atol=1e-5)
