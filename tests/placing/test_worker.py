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

    runs = {"right": lambda: [np.full(3, 4.0)], "wrong": lambda: [np.array([4.0, 4.0, 3.5])], "fails": fails}
    monkeypatch.setattr(worker, "load", lambda path, verify: SimpleNamespace(path=path))
    monkeypatch.setattr(worker, "_opened", lambda module: runs[module.path])
    for module in (worker, compare):
        monkeypatch.setattr(module, "say", lambda answer: None)
    ModuleExperiment(tuple(runs), 0.0, 1e-3).write(tmp_path / "experiment.json")
    answer = read_answer(write_answer(worker._measure(tmp_path / "experiment.json", ())))
    assert isinstance(answer, MeasuredNetwork)
    assert dict(answer.reasons) == {
        Trial(0, 1): "its results were wrong while it was measured: an error of 0.5 where the largest of ours is 4, "
        "of which 0.001 is allowed",
        Trial(0, 2): "it failed while it was measured: RuntimeError: run broke",
    }


ONES = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("theirs", "worst"),
    [
        ([ONES, ONES + np.float32(0.25), ONES * 2], "an error of 1 where the largest of ours is 1, of which 0.01 is"),
        ([ONES * 3, ONES[:1], ONES], "float32[1,3] in place of float32[2,3]"),
        ([ONES, ONES.astype(np.float64), ONES], "float64[2,3] in place of float32[2,3]"),
        ([ONES * 3, ONES * np.float32(np.nan), ONES], "NaN in place of numbers"),
        ([ONES, ONES], "2 results in place of 3"),
        ([ONES, ONES, ONES + np.float32(0.005)], ""),
    ],
)
def test_the_worst_of_wrong_results_is_told(theirs: list[np.ndarray], worst: str) -> None:
    found = compare.why_wrong([ONES] * 3, theirs, 0.01)
    assert bool(found) == bool(worst)
    assert worst in found


def test_whole_numbers_are_equal_or_wrong() -> None:
    found = compare.why_wrong([np.array([1, 2, 3])], [np.array([1, 3, 4])], 1.0)
    assert "2 of 3 elements, which are to be equal" in found
