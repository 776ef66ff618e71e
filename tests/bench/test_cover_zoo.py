"""`python -m bench.cover.zoo`: its process, what it keeps, and its report."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from bench.cover.zoo import ALONE, Compilation, ModelFolder, PlacedModel, best_alone, text
from bench.gate import Verdict
from bench.peers import OURS
from bench.peers.engine import Job
from bench.remote import EngineError
from bench.result import ComparisonResult, EngineResult
from tests.module import small_models


def test_each_step_is_done_once(tmp_path: Path) -> None:
    path = tmp_path / "mlp.onnx"
    onnx.save(small_models.mlp(), path)
    kept = ModelFolder(tmp_path / "kept")
    found = kept.compile("known", Job(path, {}, 1), ("openvino", "cpu"), kept.placed)
    assert found.seconds > 0
    assert "openvino: 3 operators" in found.placement
    assert kept.placed.exists()
    path.unlink()
    assert kept.compile("known", Job(path, {}, 1), ("openvino", "cpu"), kept.placed) == found
    with pytest.raises(EngineError, match="mlp"):
        kept.compile("alone", Job(path, {}, 1), ("cpu",))


def test_report() -> None:
    result = ComparisonResult("net", {}, 2)
    rounds = {OURS: [2.0, 2.0], ALONE: [2.1, 2.2], "onnxruntime": [3.0, 3.0], "openvino": [1.9, 2.0]}
    result.engines = {name: EngineResult(each) for name, each in rounds.items()}
    result.ours.verdict = Verdict()
    best = best_alone(result)
    assert best is not None
    assert (best[0], best[1].median) == ("openvino", 0.975)
    first = Compilation(9.0, "cpu: 3 operators in 1 calls; a run takes 2 ms", ("with openvino the model takes 3 ms",))
    report = text([(PlacedModel(first, first, first, first), result)])
    (row,) = [line for line in report.splitlines() if line.startswith("| net")]
    assert [cell.strip() for cell in row.strip("|").split("|")] == [
        "net", "2.00", "2.15", "3.00", "1.95", "openvino", "0.975", "0.95-1.00", "9.0", "9.0", "9.00", "yes",
        "cpu: 3 operators in 1 calls",
    ]  # fmt: skip
    assert "Below 0.98: 1 of 1; above 1.03: 0." in report
    assert "- net: with openvino the model takes 3 ms" in report
