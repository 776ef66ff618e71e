"""Pads that repeat more than the tensor has, or what others cut, gave zeros and entries that had been cut off; those of
a module for all sizes gave what they are of larger images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.helper import make_node as node

import fusion
from fusion.errors import FusionError
from tests.frontends.against_onnxruntime import check, model_of
from tests.module import small_models
from tests.module.small_models import FLOAT

pytestmark = pytest.mark.unoptimised


def rows(length: int) -> np.ndarray:
    return np.arange(2 * length, dtype=np.float32).reshape(2, length) + 10


def padded(mode: str, pads: tuple[int, int]) -> onnx.ModelProto:
    nodes = [node("Pad", ["x", "pads"], ["y"], mode=mode)]
    widths = {"pads": np.array([0, pads[0], 0, pads[1]])}
    return small_models.model(nodes, [("x", FLOAT, ["n", "l"])], [("y", FLOAT, ["n", None])], widths)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_reflections_go_back_and_forth(length: int) -> None:
    """As the definition has it; ONNX Runtime refuses them."""
    module = fusion.compile(padded("reflect", (2, 3)), shapes={"x": (2, length)})
    expected = np.pad(rows(length), ((0, 0), (2, 3)), "reflect")
    np.testing.assert_array_equal(module.run({"x": rows(length)})["y"], expected)


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
@pytest.mark.parametrize("pads", [(-1, 2), (2, -2)])
def test_negative_pads_cut_before_the_others_repeat(mode: str, pads: tuple[int, int]) -> None:
    x = {"x": rows(7)}
    check(model_of(19, [node("Pad", ["x", "pads"], ["y"], mode=mode)], x, pads=np.array([0, pads[0], 0, pads[1]])), x)


def test_pads_that_leave_nothing(tmp_path: Path) -> None:
    module = fusion.compile(padded("edge", (-1, -1)), shapes={"x": (2, 2)})
    module.save(tmp_path / "m.fusion")
    assert fusion.load(tmp_path / "m.fusion").run({"x": rows(2)})["y"].shape == (2, 0)


def test_nothing_is_left_to_repeat() -> None:
    with pytest.raises(FusionError, match="has no entry to pad with"):
        fusion.compile(padded("wrap", (2, -2)), shapes={"x": (2, 2)})


@pytest.mark.parametrize("first", [40, 3])
@pytest.mark.parametrize("mode", ["reflect", "wrap"])
def test_sizes_below_the_pads_of_a_module_for_all(mode: str, first: int) -> None:
    module = fusion.compile(padded(mode, (5, 6)), wait=True, hot_shapes=0)
    for length in (first, 4, 5, 131):
        expected = np.pad(rows(length), ((0, 0), (5, 6)), mode)  # type: ignore[call-overload]
        np.testing.assert_array_equal(module.run({"x": rows(length)}, wait=True)["y"], expected)
    assert "all sizes: " in module.explain()
