"""`python -m bench.cover.zoo`: its process, what it keeps, and its report."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from bench.cover.zoo import (
    ALONE,
    DEFAULT,
    Compilation,
    ModelFolder,
    PlacedModel,
    best_alone,
    best_beside_default,
    best_peer,
    text,
)
from bench.gate import Verdict
from bench.peers import OURS
from bench.peers.engine import Job
from bench.remote import EngineError
from bench.result import ComparisonResult, EngineResult
from fusion.module.archive import MANIFEST, write_archive
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
    rounds = {
        OURS: [2.0, 2.0], ALONE: [2.1, 2.2], DEFAULT: [1.8, 1.8], "onnxruntime": [3.0, 3.0], "openvino": [1.9, 2.0]
    }  # fmt: skip
    result.engines = {name: EngineResult(each) for name, each in rounds.items()}
    result.ours.verdict = Verdict()
    best, peer = best_alone(result), best_peer(result)
    assert best is not None
    assert (best[0], best[1].median) == ("openvino", 0.975)
    assert best == peer
    beside_default = best_beside_default(result)
    assert beside_default is not None
    assert (beside_default[0], beside_default[1].median) == (DEFAULT, 0.9)
    first = Compilation(9.0, "cpu: 3 operators in 1 call; a run takes 2 ms", ("with openvino the model takes 3 ms",))
    report = text([(PlacedModel(first, first, first, first, first), result)])
    assert row_of(report) == [
        "net", "2.00", "2.15", "1.80", "3.00", "1.95", "0.975 (0.95-1.00)", "openvino", "0.975 (0.95-1.00)", "0.900",
        "9.0", "9.0", "9.00", "yes", "cpu: 3 operators in 1 call",
    ]  # fmt: skip
    assert "Of the best alone, below 0.98: 1 of 1; above 1.03: 0." in report
    assert "Of the best with ours by the default effort, below 0.98: 1 of 1; above 1.03: 0." in report
    assert "- net: with openvino the model takes 3 ms" in report


def test_a_model_that_stays_is_as_fast_as_alone() -> None:
    result = ComparisonResult("net", {}, 2)
    rounds = {OURS: [2.0, 2.0], "onnxruntime": [3.0, 3.2], "openvino": [4.0, 4.0]}
    result.engines = {name: EngineResult(each) for name, each in rounds.items()}
    first = Compilation(9.0, "cpu: 3 operators in 1 call", ())
    report = text([(PlacedModel(first, first, first, first, first), result)])
    same = "the same program"
    assert row_of(report)[2:10] == [same, same, "3.10", "4.00", "1.550 (1.50-1.60)", ALONE, "1.000", "1.000"]
    assert "Of the best alone, below 0.98: 0 of 1; above 1.03: 0." in report
    assert "Of the best peer, below 0.98: 0 of 1; above 1.03: 1." in report


def row_of(report: str) -> list[str]:
    (row,) = [line for line in report.splitlines() if line.startswith("| net")]
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_programs_are_told_apart(tmp_path: Path) -> None:
    """By code and weights, not by what was measured."""
    kept = ModelFolder(tmp_path)
    for path, weights, manifest in ((kept.placed, b"1", b"2"), (kept.alone, b"1", b"3"), (kept.default, b"4", b"2")):
        write_archive(path, {MANIFEST: manifest, "weights": weights})
    assert kept.others == {DEFAULT: kept.default}
    write_archive(kept.alone, {MANIFEST: b"2", "weights": b"4"})
    assert kept.others == {ALONE: kept.alone, DEFAULT: kept.default}
