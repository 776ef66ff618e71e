"""The forms of a model, from none of the techniques to all, and what each step is worth."""

from __future__ import annotations

import json
from typing import Any

import pytest

from backends.machine_limits import Level, MachineLimits
from bench import protocol
from bench.ablation import report, steps
from bench.ablation.steps import ENGINES, NAMES, Ablation
from bench.gate import Verdict
from bench.peers.forms import PeerForm
from bench.result import ComparisonResult, EngineResult
from partition.techniques import ALL, Technique

MACHINE = MachineLimits(2, 100.0, (Level("memory", 0, 20.0),))


def ablation(*rounds: list[float], passed: bool = True) -> Ablation:
    """Return forms with these times."""
    verdict = Verdict(passed)
    engines = {name: EngineResult(times, verdict=verdict) for name, times in zip(ENGINES, rounds, strict=True)}
    return Ablation(ComparisonResult("small", {}, 2, engines))


def test_each_form_has_one_technique_more() -> None:
    forms = [PeerForm.of(engine.removeprefix("fusion:")).techniques for engine in ENGINES[:-1]]
    assert ENGINES[-1] == "fusion"
    assert [*forms, ALL] == [frozenset(list(Technique)[:count]) for count in range(len(Technique) + 1)]
    assert NAMES == ("none", "+ epilogue", "+ stitching", "+ intensive", "+ rewrites")


def test_factors_are_medians_over_the_rounds() -> None:
    # The machine is half as fast in the second round, and disturbed in the third.
    found = ablation([8, 16, 8], [4, 8, 8], [4, 8, 4], [2, 4, 2], [2, 4, 2])
    assert found.factors == [2, 1, 2, 1, 4]


def test_a_form_without_times_has_no_factor() -> None:
    found = ablation([8], [], [4], [2], [1])
    assert found.factors == [None, None, 2, 2, 8]
    assert "| (2.00)" in report.text([found], MACHINE)


def test_the_report_has_a_line_a_model_and_their_mean() -> None:
    some = [ablation([8], [4], [4], [2], [2]), ablation([2], [2], [2], [2], [2], passed=False)]
    text = report.text(some, MACHINE)
    assert "| 8.00     | 4.00 (2.00)    | 4.00 (1.00)     | 2.00 (2.00)     | 2.00 (1.00)    | 4.00 " in text
    assert text.count("| NO") == 1
    assert "| geometric mean |          | (1.41)         | (1.00)          | (1.41)          | (1.00)" in text
    assert json.loads(report.as_json(some, MACHINE))["models"][0]["factors"]["all"] == 4


def test_all_forms_are_timed_in_one_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def fake(job: Any, plan: protocol.ComparisonPlan, draw: Any, name: str) -> ComparisonResult:
        asked.append((plan.peers, job.path.name))
        return ComparisonResult(name, {}, plan.threads)

    monkeypatch.setattr(protocol, "compare", fake)
    found = steps.measure("squeezenet", threads=1, rounds=2, seconds=0.1)
    assert asked == [(ENGINES[:-1], "squeezenet.onnx")]
    assert found.result.model == "squeezenet"
