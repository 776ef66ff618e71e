"""Batches from one module: how they are made, run, checked, reported and kept."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from backends.machine_limits import Level, MachineLimits
from bench.batches import __main__ as program
from bench.batches import report
from bench.batches.images import BatchImages
from bench.batches.measure import BatchPlan, run_batches
from bench.batches.result import BatchesResult
from bench.gate import Verdict
from bench.peers import OURS
from bench.peers.engine import Arrays, Job
from bench.result import ComparisonResult, EngineResult
from tests.module import small_models

PEER = "onnxruntime"
MACHINE = MachineLimits(1, 100.0, (Level("memory", 0, 10.0),))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return two layers over an open batch."""
    path = tmp_path / "mlp.onnx"
    onnx.save(small_models.mlp("batch"), path)
    return path


def draw(seed: int) -> Arrays:
    return {"x": np.random.default_rng(seed).standard_normal((1, 8)).astype(np.float32)}


def test_a_batch_is_a_few_images_in_turn_along_the_first_axis_of_extent_1() -> None:
    images = BatchImages.draw(
        Path("none.onnx"),
        lambda seed: {"state": np.full((2, 1, 3), seed), "rate": np.array(16000), "x": np.full((1, 1), seed)},
    )
    batch = images.batch(9, first=1)
    assert batch["x"].shape == (9, 1)
    assert batch["x"].ravel().tolist() == [1, 2, 3, 4, 5, 6, 0, 1, 2]
    assert batch["state"].shape == (2, 9, 3)
    assert (batch["state"] == batch["x"].reshape(1, 9, 1)).all()
    assert batch["rate"].shape == ()


def test_what_must_come_out_is_computed_image_by_image(model: Path) -> None:
    images = BatchImages.draw(model, draw)
    (expected,) = images.outputs(9).values()
    assert expected.dtype == np.float64
    assert np.array_equal(expected[7:], expected[:2])
    np.testing.assert_allclose(expected, small_models.mlp_numpy(images.batch(9)["x"]), rtol=1e-4, atol=1e-5)


def test_all_batches_run_in_one_module_and_are_right(model: Path) -> None:
    plan = BatchPlan(batches=(1, 9), timed=(9,), threads=1, peers=(PEER,), rounds=2, round_s=0.01)
    result = run_batches(Job(model, {}, threads=1), plan, BatchImages.draw(model, draw), "mlp")
    assert result.passed, report.text([result], MACHINE)
    assert result.forms == 1, "one for all batches"
    for size, rounds in ((1, 0), (9, 2)):
        assert result.batches[size].shapes == {"x": (size, 8)}
        for engine in (OURS, PEER):
            found = result.batches[size].engines[engine]
            assert len(found.rounds_ms) == rounds
            assert found.verdict is not None
            assert found.verdict.reference == "float64"
    assert BatchesResult.read(result.as_json()) == result


def found(ratios: dict[int, float], wrong: int | None = None, forms: int = 1) -> BatchesResult:
    result = BatchesResult("two", forms=forms)
    for size, ratio in ratios.items():
        reasons = ["y: error 2.00e-01, allowed 1.00e-04"] if size == wrong else []
        verdict = Verdict(passed=size != wrong, error=0.2, baseline_error=0.1, reasons=reasons)
        engines = {OURS: EngineResult([1.0], [0.0], verdict=verdict), PEER: EngineResult([ratio], [0.0])}
        result.batches[size] = ComparisonResult(f"two, batch {size}", {}, 1, engines)
    return result


def test_the_report_has_errors_of_all_batches_and_times_of_each() -> None:
    result = found({8: 2.0, 32: 8.0}, wrong=32, forms=2)
    text = report.text([result], MACHINE)
    lines = [line for line in text.splitlines() if line.startswith("| two")]
    rows = [[cell.strip() for cell in line.split("|")[2:-1]] for line in lines]
    assert rows == [
        ["2", "2.0e-01 / 1.0e-01", "2.0e-01 / 1.0e-01 NO", "NO"],
        ["1.00", "2.00", "2.00", "2.00-2.00"],
        ["1.00", "8.00", "8.00", "8.00-8.00"],
    ]
    assert "Geometric mean of the ratios of all batches: 4.000, 2 of 2." in text
    assert "Right in every batch: 0 of 1 models." in text
    assert "- two, batch 32: fusion is not right: y: error 2.00e-01, allowed 1.00e-04" in text
    assert "- two: 2 forms of it" in text
    assert json.loads(report.as_json([result], MACHINE))["models"][0]["forms"] == 2


def test_what_is_kept_of_models_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def run(name: str, plan: BatchPlan) -> BatchesResult:
        ran.append(name)
        return found({8: 2.0})

    monkeypatch.setattr(program, "_run", run)
    monkeypatch.setattr(program, "measure_machine", lambda threads: MACHINE)

    def main(*words: str) -> int:
        monkeypatch.setattr("sys.argv", ["batches", *words, "--out", str(tmp_path), "--peers", PEER])
        return program.main()

    assert main("a") == 0
    assert main("a", "b", "--resume") == 0
    assert ran == ["a", "b"]
    assert main("a", "b", "c", "--resume", "--minutes", "0") == 1, "c is left"
    assert main("a") == 0
    assert ran == ["a", "b", "a"], "without --resume all are run"
    assert main("a", "--resume", "--rounds", "7") == 0
    assert ran == ["a", "b", "a", "a"], "it was run otherwise"
    assert main("a", "--batches", "1", "--timed", "8") == 2
    assert main("a", "--batches", "0", "--timed") == 2
    assert (tmp_path / "batches.md").read_text().count("| two") == 2
