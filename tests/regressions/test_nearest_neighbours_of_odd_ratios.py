"""Nearest neighbours where a place lies between two elements: ONNX Runtime divides by the scale, TVM multiplied."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from tests.frontends.against_onnxruntime import check, model_of


@pytest.mark.parametrize(
    ("transform", "rounding"),
    [("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"), ("half_pixel", "round_prefer_ceil")],
)
def test_nearest_neighbours_are_those_of_onnx_runtime(transform: str, rounding: str) -> None:
    pairs = [(14, 13), (126, 159), (138, 299), (200, 290), (189, 6), (28, 2), (216, 178), (40, 20), (13, 39)]
    inputs = {f"x{have}": np.arange(have * 2, dtype=np.float32).reshape(1, 1, have, 2) for have, _ in pairs}
    sizes = {f"size{want}": np.array([1, 1, want, 4], np.int64) for _, want in pairs}
    nodes = [
        helper.make_node(
            "Resize", [f"x{have}", "", "", f"size{want}"], [f"{have}_to_{want}"],
            mode="nearest", coordinate_transformation_mode=transform, nearest_mode=rounding,
        )
        for have, want in pairs
    ]  # fmt: skip
    check(model_of(18, nodes, inputs, **sizes), inputs)
