"""What the process that measures says of modules that it does not measure."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fusion.errors import ExecutionError
from fusion.placing import compare, worker
from fusion.placing.experiment import ModuleExperiment
from tuning.messages import MeasuredNetwork, Trial, read_answer, write_answer


def test_it_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> list[np.ndarray]:
        raise ExecutionError("the backend 'b' failed", why="RuntimeError: run broke")

    runs = {"right": lambda: [np.ones(3)], "wrong": lambda: [np.zeros(3)], "fails": fails}
    monkeypatch.setattr(worker, "load", lambda path, verify: SimpleNamespace(path=path))
    monkeypatch.setattr(worker, "_opened", lambda module: runs[module.path])
    for module in (worker, compare):
        monkeypatch.setattr(module, "say", lambda answer: None)
    ModuleExperiment(tuple(runs), 0.0, 1e-3).write(tmp_path / "experiment.json")
    answer = read_answer(write_answer(worker._measure(tmp_path / "experiment.json", ())))
    assert isinstance(answer, MeasuredNetwork)
    assert dict(answer.reasons) == {
        Trial(0, 1): "its results were wrong while it was measured",
        Trial(0, 2): "it failed while it was measured: RuntimeError: run broke",
    }
