"""How often a window fits: ONNX's inference and TVM differ from ONNX Runtime where it hangs over, and fusion refused or
returned what neither did."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import fusion
from fusion.errors import FusionError, ShapeError
from tests.frontends.against_onnxruntime import check
from tests.module.small_models import FLOAT, model

pytestmark = pytest.mark.unoptimised

RNG = np.random.default_rng(0)
# Sizes of an image, and of the window.
CASES: list[tuple[list[int], dict[str, Any]]] = [
    ([7, 3], {"kernel_shape": [2, 3], "strides": [3, 5], "pads": [1, 0, 0, 1], "ceil_mode": 1}),  # starts in pads
    ([7, 7], {"kernel_shape": [2, 2], "strides": [3, 5], "pads": [0, 0, 0, 1], "ceil_mode": 1}),
    ([4, 2], {"kernel_shape": [4, 4], "strides": [5, 5]}),  # larger than the image, by less than a stride
    ([1, 7], {"kernel_shape": [2, 4], "strides": [4, 3]}),
    ([6, 1], {"kernel_shape": [3, 3], "strides": [2, 5], "auto_pad": "VALID", "ceil_mode": 1}),
    ([5, 6], {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": "SAME_LOWER", "ceil_mode": 1}),
    ([5], {"kernel_shape": [2], "strides": [2], "ceil_mode": 1}),
    ([3, 2], {"kernel_shape": [2, 3], "strides": [1, 1]}),  # no places, and no error
    ([2, 2, 7], {"kernel_shape": [4, 3, 3], "strides": [5, 5, 2], "pads": [3, 2, 0, 0, 2, 0], "ceil_mode": 1}),
]


@pytest.mark.parametrize(("size", "window"), CASES, ids=[str(number) for number in range(len(CASES))])
def test_pools(size: list[int], window: dict[str, Any]) -> None:
    nodes = [helper.make_node(op, ["x"], [op], **window) for op in ("MaxPool", "AveragePool", "LpPool")]
    nodes.append(helper.make_node("AveragePool", ["x"], ["all"], count_include_pad=1, **window))
    nodes.append(helper.make_node("LpPool", ["x"], ["cubes"], p=3, **window))
    outputs = [(node.output[0], FLOAT, None) for node in nodes]
    made = model(nodes, [("x", FLOAT, [1, 8, *size])], outputs)
    made.opset_import[0].version = 18
    check(made, {"x": RNG.standard_normal((1, 8, *size), dtype=np.float32)}, fallbacks=None)


def test_dilations_count_for_no_automatic_padding() -> None:
    window = {"kernel_shape": [3, 2], "strides": [3, 1], "dilations": [2, 3], "auto_pad": "SAME_UPPER"}
    nodes = [helper.make_node(op, ["x"], [op], **window) for op in ("MaxPool", "AveragePool", "LpPool")]
    made = model(nodes, [("x", FLOAT, [1, 8, 8, 7])], [(node.output[0], FLOAT, None) for node in nodes])
    made.opset_import[0].version = 19
    check(made, {"x": RNG.standard_normal((1, 8, 8, 7), dtype=np.float32)})


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_windows_without_places(op: str) -> None:
    pool = helper.make_node(op, ["x"], ["y"], kernel_shape=[4, 4])
    made = model([pool], [("x", FLOAT, [1, 8, 2, 4])], [("y", FLOAT, None)])
    with pytest.raises(ShapeError, match="smaller than its window"):
        fusion.compile(made)


def test_all_is_cropped() -> None:
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], pads=[2, 1, 2, 1])
    weights = {"w": np.ones((3, 4, 3, 3), np.float32)}
    made = model([node], [("x", FLOAT, [1, 3, 1, 3])], [("y", FLOAT, None)], weights)
    with pytest.raises(FusionError, match="contradict"):
        fusion.compile(made)
