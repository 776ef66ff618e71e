"""Options of the API with values that are not allowed."""

from __future__ import annotations

from typing import Any

import pytest
from onnx import helper

import fusion
from fusion.errors import FusionError, OptionError, ShapeError, TargetError, UnsupportedOperatorError
from tests.module import small_models


@pytest.mark.parametrize(
    ("options", "error", "word"),
    [
        ({"effort": "extreme"}, OptionError, "extreme"),
        ({"effort": "balanced"}, OptionError, "not available yet"),
        ({"effort": "max"}, OptionError, "not available yet"),
        ({"backends": ["cuda"]}, OptionError, "cuda"),
        ({"backends": "cpu"}, OptionError, "give a list"),
        ({"backends": ["onnxruntime"]}, OptionError, "leaves out 'cpu'"),
        ({"threads": 0}, OptionError, "threads=0"),
        ({"threads": -2}, OptionError, "threads=-2"),
        ({"target": "gpu9000"}, TargetError, "gpu9000"),
        ({"target": "llvm -mcpu"}, TargetError, "-mcpu"),
        ({"target": 7}, TargetError, "int"),
        ({"shapes": {"nothing": (1,)}}, ShapeError, "'nothing'"),
        ({"shapes": {"x": (3, 9)}}, ShapeError, "contradicts"),
    ],
)
def test_wrong_options(options: dict[str, Any], error: type[FusionError], word: str) -> None:
    with pytest.raises(error) as caught:
        fusion.compile(small_models.mlp(), **options)
    assert word in str(caught.value)


def test_without_onnxruntime_a_fallback_is_refused() -> None:
    node = helper.make_node("Det", ["x"], ["y"])
    model = small_models.model([node], [("x", small_models.FLOAT, [3, 2, 2])], [("y", small_models.FLOAT, [3])], {})
    with pytest.raises(UnsupportedOperatorError, match="Det"):
        fusion.compile(model, backends=["cpu"])


def test_a_target_this_machine_cannot_run() -> None:
    with pytest.raises(TargetError, match="compiled for aarch64"):
        fusion.compile(small_models.mlp(), "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72")
