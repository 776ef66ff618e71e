"""Several callers of one engine, and its calls beside busy processes."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from typing import Any

import numpy as np
import pytest

from bench.gate import Verdict
from bench.peers.engine import Arrays
from bench.result import EngineResult
from bench.serving import busy, callers, measure, report
from bench.serving.callers import Served
from bench.serving.measure import LATENCY, THROUGHPUT, Serving

INPUTS = [{"x": np.full(3, value, np.float32)} for value in range(4)]


def double(inputs: Arrays) -> Arrays:
    time.sleep(0.001)
    return {"y": inputs["x"] * 2}


def test_callers_run_at_a_time_and_are_counted_together() -> None:
    one, four = (callers.serve(double, INPUTS, count, 0.3) for count in (1, 4))
    assert one.equal
    assert four.equal
    assert four.per_s > 2 * one.per_s


def test_outputs_that_differ_beside_other_callers_are_noticed() -> None:
    shared = np.zeros(3, np.float32)

    def through_shared_memory(inputs: Arrays) -> Arrays:
        shared[:] = inputs["x"]
        time.sleep(0.002)
        return {"y": shared}

    assert callers.serve(through_shared_memory, INPUTS, 1, 0.01).equal
    assert not callers.serve(through_shared_memory, INPUTS, 4, 0.01).equal


def test_an_error_of_one_caller_is_raised() -> None:
    def fails_elsewhere(inputs: Arrays) -> Arrays:
        if threading.current_thread() is not threading.main_thread():
            raise KeyError("in a caller")
        return inputs

    with pytest.raises(KeyError):
        callers.serve(fails_elsewhere, INPUTS, 2, 0.01)


def test_every_call_of_a_round_is_timed() -> None:
    times = callers.latencies(double, INPUTS[0], 0.05)
    assert len(times) > 5
    assert min(times) >= 0.001


def test_busy_processes_end_with_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    popen = subprocess.Popen
    monkeypatch.setattr(busy.subprocess, "Popen", lambda *given: started.append(popen(*given)) or started[-1])
    with busy.busy_processes(2):
        assert [process.poll() for process in started] == [None, None]
    assert all(process.returncode for process in started)


def found(equal: bool = True) -> Serving:
    serving = Serving("small", {name: EngineResult(verdict=Verdict(True)) for name in {*THROUGHPUT, *LATENCY}})
    for factor in (1, 2):  # the machine is twice as fast in the second round
        for rate, name in zip((300.0, 100.0, 150.0), THROUGHPUT, strict=True):
            serving.served[2][name].append(Served(rate * factor, equal))
    for name in LATENCY:
        serving.quiet[name] = [0.001] * 98 + [0.002] * 2
        serving.busy[name] = [0.002] * 98 + [0.006] * 2
    return serving


def test_the_report_has_ratios_within_rounds_and_what_calls_grow_by() -> None:
    text = report.text([found()], 2, 2)
    served = next(line for line in text.splitlines() if line.startswith("| small | 2 "))
    assert [cell.strip() for cell in served.split("|")[3:-1]] == ["450.0", "150.0", "225.0", "3.00", "2.00", "yes"]
    grown = next(line for line in text.splitlines() if line.startswith("| small | fusion "))
    assert [cell.strip() for cell in grown.split("|")[3:-1]] == ["1.000", "2.000", "2.000", "6.000", "2.00", "3.00"]
    assert json.loads(report.as_json([found()], 2, 2))["models"][0]["runs_per_s"]["2"]["fusion"] == [300.0, 600.0]


def test_ours_is_right_only_if_all_callers_got_the_same_bits() -> None:
    assert found().right
    assert not found(equal=False).right
    failed = found()
    failed.engines["fusion"].failure = "it died"
    assert not failed.right
    assert "small, fusion: it died" in report.text([failed], 2, 2)


def test_engines_are_interleaved(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    class Fake:
        def __init__(self, engine: str) -> None:
            self.engine = engine

        def ask(self, deadline: float, method: str, *arguments: Any) -> Any:
            if method != "settle":
                asked.append((method, self.engine))
            return {"serve": Served(1.0, True), "latencies": [0.1]}.get(method)

    monkeypatch.setattr(measure.protocol, "start", lambda engine, *others, **named: Fake(engine))
    monkeypatch.setattr(measure.protocol, "check", lambda *given, **named: None)
    monkeypatch.setattr(measure.bench.peers, "installed", lambda name: True)
    monkeypatch.setattr(measure, "allowed_cpus", lambda: 0)
    result = measure.measure("squeezenet", 1, 2, 0.1, [1, 4])
    one_round = [("serve", name) for name in THROUGHPUT] * 2 + [("latencies", name) for name in LATENCY] * 2
    assert asked == one_round * 2
    assert {count: len(engines["fusion"]) for count, engines in result.served.items()} == {1: 2, 4: 2}
