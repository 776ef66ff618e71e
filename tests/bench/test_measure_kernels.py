"""One case's failure, in whatever step, stays with that case: the others keep their results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from bench import protocol
from bench.inputs import InputSpec
from bench.kernels import measure as module
from bench.kernels.case import Case
from bench.kernels.measure import measure
from bench.peers.engine import Kernels
from bench.remote import EngineError
from bench.result import ComparisonResult

SHAPE = (8, 16)


class FakeWorker:
    """A worker that computes Relu at once, or fails in the requests of which `failing` has the reason."""

    def __init__(self, engine: str, failing: dict[str, str]) -> None:
        self.engine, self.failing = engine, failing
        self.asked: list[str] = []
        self.closed = False

    def ask(self, deadline_s: float, method: str, *arguments: Any) -> Any:
        """Answer as `bench.worker.Server` does."""
        assert not self.closed, f"{self.engine} has ended"
        self.asked.append(method)
        if method in self.failing:
            raise EngineError(f"{method}: {self.failing[method]}")
        if method == "run":
            return {"y": np.maximum(arguments[0]["x"], 0)}
        answers = {"build": (0.5, True), "measure": (1e-3, 0.0), "rss": (2, 1), "settle": 0.0}
        return Kernels(1, 0.5) if method == "kernels" else answers.get(method, 0.5)

    def close(self) -> None:
        """End it."""
        self.closed = True

    def __enter__(self) -> FakeWorker:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@dataclass
class Machine:
    """Starts fake workers, of which the first one of an engine fails as `failing[engine]` says."""

    failing: dict[str, dict[str, str]] = field(default_factory=dict)
    workers: list[FakeWorker] = field(default_factory=list)

    def start(self, engine: str, threads: int) -> FakeWorker:
        """Take the place of `bench.remote.Worker`."""
        self.workers.append(FakeWorker(engine, self.failing.pop(engine, {})))
        return self.workers[-1]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """The machine that `measure` runs on."""
    fake = Machine()
    monkeypatch.setattr(module, "Worker", fake.start)
    return fake


def run(*peers: str) -> list[ComparisonResult]:
    """Measure the same case three times."""
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "relu",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, SHAPE)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    case = Case("relu 8x16", "relu", model, (InputSpec("x", SHAPE, "float32"),), 0, 1024, {"small": 1})
    plan = protocol.ComparisonPlan(threads=1, rounds=2, round_s=0.01, peers=peers, checks=1)
    return [measured.result for measured in measure([case] * 3, plan)]


def test_outputs_are_checked_against_onnxruntime_where_it_is_no_peer(machine: Machine) -> None:
    for result in run("openvino"):
        assert list(result.engines) == ["fusion", "openvino"]
        assert result.passed
        assert result.ratio is not None
    assert [worker.engine for worker in machine.workers] == ["fusion", "openvino", "onnxruntime"]
    assert "measure" not in machine.workers[2].asked
    assert all(worker.closed for worker in machine.workers)


@pytest.mark.parametrize("method", ["load", "run"])
def test_a_case_that_onnxruntime_fails_says_so_and_the_next_goes_on(machine: Machine, method: str) -> None:
    machine.failing["onnxruntime"] = {method: "no such kernel"}
    failed, *others = run("onnxruntime", "openvino")
    assert not failed.passed
    assert failed.ours.latency_ms is None
    assert all("no such kernel" in engine.failure for engine in failed.engines.values())
    assert all(result.passed and set(result.ratios) == {"onnxruntime", "openvino"} for result in others)


@pytest.mark.parametrize(
    ("engine", "method"),
    [
        ("fusion", "build"),
        ("fusion", "kernels"),
        *((engine, step) for engine in ("fusion", "openvino") for step in ("load", "run", "measure", "settle", "rss")),
    ],
)
def test_an_engine_that_fails_has_a_new_process_for_the_next_case(machine: Machine, engine: str, method: str) -> None:
    machine.failing[engine] = {method: "it died"}
    failed, *others = run("onnxruntime", "openvino")
    assert failed.engines[engine].failure == f"{method}: it died"
    assert failed.engines[engine].latency_ms is None
    assert failed.engines["onnxruntime"].latency_ms == pytest.approx(1)
    for result in others:
        assert not any(found.failure for found in result.engines.values())
        assert result.passed
    assert [worker.engine for worker in machine.workers] == ["fusion", "onnxruntime", "openvino", engine]
