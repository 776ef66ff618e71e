"""Float64 references are evaluated once, and again where anything of them differs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from bench.reference import evaluate, kept

INPUTS = {"x": np.arange(3, dtype="float32")}


class Evaluations:
    """Counts what is evaluated."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, path: Path, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        self.count += 1
        return evaluate(path, inputs)


@pytest.fixture
def evaluations(monkeypatch: pytest.MonkeyPatch) -> Evaluations:
    counting = Evaluations()
    monkeypatch.setattr(kept, "evaluate", counting)
    return counting


def _write(path: Path, factor: float) -> Path:
    weight = numpy_helper.from_array(np.array(factor, "float32"), "w")
    values: list[Any] = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [3]) for name in ("x", "a/y")]
    graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["a/y"])], "g", values[:1], values[1:], [weight])
    onnx.save(helper.make_model(graph), path)
    return path


def test_a_second_evaluation_is_read(tmp_path: Path, evaluations: Evaluations) -> None:
    model = _write(tmp_path / "m.onnx", 3.0)
    for _ in range(2):
        found = kept.kept_or_evaluated(model, INPUTS, tmp_path)
        assert list(found) == ["a/y"]
        assert found["a/y"].dtype == np.float64
        np.testing.assert_array_equal(found["a/y"], [0, 3, 6])
    assert evaluations.count == 1


def test_other_weights_and_other_inputs_are_evaluated(tmp_path: Path, evaluations: Evaluations) -> None:
    first = kept.kept_or_evaluated(_write(tmp_path / "m.onnx", 3.0), INPUTS, tmp_path)
    second = kept.kept_or_evaluated(_write(tmp_path / "m.onnx", 5.0), INPUTS, tmp_path)
    third = kept.kept_or_evaluated(tmp_path / "m.onnx", {"x": INPUTS["x"] + 1}, tmp_path)
    assert [found["a/y"][1] for found in (first, second, third)] == [3, 5, 10]


def test_weights_beside_the_file_count(tmp_path: Path, evaluations: Evaluations) -> None:
    for factor in (3.0, 5.0):
        model = onnx.load(_write(tmp_path / "m.onnx", factor))
        onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
        assert kept.kept_or_evaluated(tmp_path / "m.onnx", INPUTS, tmp_path)["a/y"][1] == factor
        (tmp_path / "w.bin").unlink()


def test_a_damaged_file_is_evaluated_again(tmp_path: Path, evaluations: Evaluations) -> None:
    model = _write(tmp_path / "m.onnx", 3.0)
    kept.kept_or_evaluated(model, INPUTS, tmp_path)
    (file,) = (tmp_path / "references").iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    assert kept.kept_or_evaluated(model, INPUTS, tmp_path)["a/y"][1] == 3
    assert evaluations.count == 2
