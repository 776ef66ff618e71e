"""One whole comparison on a small model: compiled, saved, loaded elsewhere, checked and timed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import bench
from bench import protocol
from bench.peers import OURS, ours
from bench.peers.engine import Job
from bench.remote import EngineError
from bench.result import ComparisonResult, EngineResult
from bench.streams import measure
from fusion.errors import OptionError, ShapeError
from tests.bench.engine_here import EngineHere
from tests.cli.commands import run


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return relu(x @ w) with an open batch dimension."""
    weight = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node("Relu", ["z"], ["y"])],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 8])],
        [numpy_helper.from_array(weight, "w")],
    )
    path = tmp_path / "small.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_a_small_model_is_compared(model: Path) -> None:
    result = bench.compare_model(model, {"x": (4, 16)}, threads=1, rounds=2, peers=["onnxruntime"])
    assert result.ours.failure == ""
    assert result.passed
    assert result.ours.verdict is not None
    assert result.ours.verdict.reference == "float64"
    assert list(result.ratios) == ["onnxruntime"]
    assert json.loads(json.dumps(result.as_dict()))["model"] == "small"
    assert "| onnxruntime |" in result.table()


def test_backends_of_ours_are_those_of_the_user(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs: list[Job] = []

    def note(job: Job, *_: object, **__: object) -> ComparisonResult:
        jobs.append(job)
        return ComparisonResult("small", {}, 1, {OURS: EngineResult()})

    monkeypatch.setattr(protocol, "compare", note)
    named = ["--backends", "onnxruntime,cpu"]
    run(capsys, "bench", model, "--shape", "x=4,16", "--threads", 1, *named)
    run(capsys, "bench", model, "--shape", "x=4,16", "--threads", 1)
    (theirs, default) = jobs
    assert ours._compile(theirs).placement.backends == ("onnxruntime",)
    assert ours._compile(default).placement.backends == ("cpu",)

    monkeypatch.setattr(measure, "run_stream", note)
    (model.parent / "calls.json").write_text('[{"x": [4, 16]}]')
    run(capsys, "bench", model, "--shapes", model.parent / "calls.json", *named)
    assert jobs[2].backends == ("onnxruntime", "cpu")


def test_an_open_dimension_must_be_given(model: Path) -> None:
    with pytest.raises(ShapeError, match="'x'"):
        bench.compare_model(model)


def test_each_request_has_its_deadline(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = set()

    class Recorded(EngineHere):
        def ask(self, deadline_s: float, method: str, *arguments: Any) -> Any:
            asked.add((method, deadline_s))
            return super().ask(deadline_s, method, *arguments)

    monkeypatch.setattr(protocol, "Worker", Recorded)
    job = Job(model, {"x": (4, 16)}, threads=1)
    plan = protocol.ComparisonPlan(threads=1, rounds=1, peers=(), build_s=61.0, load_s=62.0, run_s=63.0)
    protocol.compare(job, plan, lambda seed: {"x": np.zeros((4, 16), np.float32)}, "small")
    short = {(method, 63.0) for method in ("run", "measure", "settle", "rss")}
    assert asked == short | {("build", 61.0), ("load", 62.0)}


def test_without_onnxruntime_there_is_no_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "Worker", EngineHere)
    path = tmp_path / "no_model.onnx"
    path.write_bytes(b"")
    job = Job(path, {}, threads=1)
    with pytest.raises(EngineError, match="onnxruntime, which all are checked against, has no results: load: "):
        protocol.compare(job, protocol.ComparisonPlan(threads=1, peers=()), lambda seed: {}, "none")


def test_an_unknown_peer_is_refused(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "Worker", EngineHere)
    with pytest.raises(OptionError, match="no peer"):
        bench.compare_model(model, {"x": (4, 16)}, peers=["tensorrt"])
