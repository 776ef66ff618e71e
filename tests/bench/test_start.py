"""The stages from starting Python to the first result."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from bench import start, zoo
from bench.inputs import InputSpec
from bench.zoo import Recipe, ZooModel
from tests.module import small_models


def test_stages_of_both_engines_are_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mlp.onnx"
    onnx.save(small_models.mlp(), path)
    model = ZooModel(Recipe("mlp", lambda path: None, {}), path, (InputSpec("x", (3, 8), "float32"),))
    monkeypatch.setattr(zoo, "make", lambda name: model)
    found = start.measure("mlp", 1, 1)
    assert list(found) == ["fusion", "onnxruntime"]
    for seconds in found.values():
        assert len(seconds) == len(start.STAGES)
        assert min(seconds) > 0


def test_a_stage_that_takes_long_is_told_from_the_others(tmp_path: Path) -> None:
    slow = "load = lambda path, threads: time.sleep(0.4) or (lambda inputs: time.sleep(0.2))"
    np.savez(tmp_path / "x.npz", x=np.ones(1))
    seconds = dict(zip(start.STAGES, start.time_stages(slow, tmp_path, tmp_path / "x.npz", 1), strict=True))
    assert seconds["load"] >= 0.4
    assert seconds["first run"] >= 0.2
    assert seconds["second run"] >= 0.2
    assert seconds["engine"] < 0.4
