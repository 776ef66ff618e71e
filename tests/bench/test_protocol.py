"""Workers answer, fail, hang and die without taking the comparison with them; ratios are made per round."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from bench import protocol, zoo
from bench.gate import Verdict
from bench.peers.engine import Job
from bench.remote import EngineError, Worker
from bench.result import ComparisonResult, EngineResult
from fusion.system import cpu_load

DEADLINE_S = 120.0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> zoo.ZooModel:
    return zoo.make("squeezenet", tmp_path_factory.mktemp("cache"))


def test_a_worker_loads_runs_measures_and_then_sleeps(model: zoo.ZooModel, tmp_path: Path) -> None:
    with Worker("onnxruntime", threads=2) as worker:
        assert worker.ask(DEADLINE_S, "load", Job(model.path, model.shapes, 2), tmp_path) > 0
        outputs = worker.ask(DEADLINE_S, "run", model.inputs(0))
        assert outputs["softmaxout_1"].shape == (1, 1000, 1, 1)
        seconds, others = worker.ask(DEADLINE_S, "measure", model.inputs(1), 0.1)
        assert seconds > 0
        assert 0 <= others <= 1.1, "the clock ticks in steps of 10 ms"
        assert worker.ask(DEADLINE_S, "settle") <= 0.05
        peak, base = worker.ask(DEADLINE_S, "rss")
        assert peak > base > 0


def test_an_engines_error_reaches_the_parent(tmp_path: Path) -> None:
    with Worker("onnxruntime", threads=1) as worker:
        with pytest.raises(EngineError, match=r"load: .*missing\.onnx"):
            worker.ask(DEADLINE_S, "load", Job(tmp_path / "missing.onnx", {}, 1), tmp_path)
        assert worker.ask(DEADLINE_S, "rss")[0] > 0, "it still answers"


def test_a_late_worker_is_ended() -> None:
    started = time.monotonic()
    with Worker("onnxruntime", threads=1) as worker, pytest.raises(EngineError, match="longer than 0 s"):
        worker.ask(0.0, "settle")
    assert time.monotonic() - started < DEADLINE_S / 4


def test_a_dead_worker_tells_its_code() -> None:
    with Worker("nonsense", threads=1) as worker, pytest.raises(EngineError, match=r"ended with code 1: .*nonsense"):
        worker.ask(DEADLINE_S, "settle")


@pytest.mark.skipif(sys.platform != "linux", reason="the parent's death is signalled by Linux only")
def test_a_worker_dies_with_its_parent() -> None:
    start = 'from bench.remote import Worker; w = Worker("onnxruntime", 1); w.ask(60, "rss"); print(w.pid, flush=True)'
    code = f"import os; {start}; os._exit(0)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    output = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    status = Path("/proc") / output.stdout.strip()
    deadline = time.monotonic() + DEADLINE_S
    while status.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not status.exists()


@pytest.mark.parametrize(
    "program",
    ["import bench.protocol, bench.demo.__main__", "import bench.worker, bench.peers; bench.peers.engine('fusion')"],
    ids=["parent", "runner"],
)
def test_a_process_without_a_use_for_the_compiler_has_none(program: str) -> None:
    """The memory of the one that runs the saved module is what the report compares."""
    code = f"import sys; {program}; print({{'tvm', 'torch'}} & set(sys.modules))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    output = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert output.stdout.strip() == "set()"


def test_load_by_others_is_seen_and_our_own_is_not() -> None:
    spin = "import time; end = time.monotonic() + 1.5\nwhile time.monotonic() < end: pass"
    with subprocess.Popen([sys.executable, "-c", spin]), cpu_load.watch() as load:
        time.sleep(1)
    assert load.others > 0.5 / (os.cpu_count() or 1)
    compared = result([1.0])
    compared.ours.others.append(load.others)
    assert "others used" in compared.table()


def result(ours: list[float], **peers: list[float]) -> ComparisonResult:
    engines = {"fusion": EngineResult(ours, verdict=Verdict())}
    return ComparisonResult("m", {}, 2, engines | {name: EngineResult(rounds) for name, rounds in peers.items()})


def test_the_ratio_is_to_the_best_peer_by_round() -> None:
    compared = result([1.0, 2.0, 1.0], a=[2.0, 4.0, 3.0], b=[4.0, 8.0, 4.0])
    ratio = compared.ratio
    assert ratio is not None
    assert (ratio.median, ratio.low, ratio.high) == (2.0, 2.0, 3.0)
    assert compared.ratios["b"].median == 4.0
    assert "fusion is faster by" in compared.table()
    assert "median over the rounds of (latency of the engine / latency of fusion)" in compared.table()
    assert compared.as_dict()["ratio"]["median"] == 2.0


def test_the_ratio_is_of_rounds_and_not_of_medians() -> None:
    ratio = result([1.0, 2.0, 3.0], a=[3.0, 2.0, 3.0]).ratio
    assert ratio is not None
    assert ratio.median == 1.0, "the medians of the rounds are 2 and 3"


def test_a_failed_peer_has_no_ratio_and_is_named() -> None:
    compared = result([1.0], a=[])
    compared.engines["a"].failure = "a: load: no such file"
    assert compared.ratio is None
    assert "no such file" in compared.table()


def test_a_reference_with_which_a_peer_agrees_is_what_is_right() -> None:
    """ONNX Runtime's products of bytes saturate on some CPUs; a reference with which nobody agrees is wrong itself."""
    exact, saturated = {"y": np.ones(2)}, {"y": np.full(2, 0.9, np.float32)}
    find = functools.partial(protocol._references, lambda arrays: exact, [{}], [saturated])
    assert find([[saturated]]) == ("onnxruntime", [saturated])
    assert find([[saturated], [exact]]) == ("float64", [exact])
