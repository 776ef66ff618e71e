"""Linear resizes at exact positions: in float32 those far from 0 lost digits of their weights."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, helper

import fusion
from tests.frontends.against_onnxruntime import check, model_of

PAIRS = [(7, 20), (9, 3), (28, 224), (1, 4)]


def model(transform: str, by_scale: bool) -> tuple[ModelProto, dict[str, np.ndarray]]:
    """Return resizes of the height from 1 element to 2 and of the width by `PAIRS`."""
    random = np.random.default_rng(5)
    inputs = {f"x{have}": random.standard_normal((2, 3, 2, have), np.float32) for have, _ in PAIRS}
    known: dict[str, np.ndarray] = {}
    nodes = []
    for have, want in PAIRS:
        if by_scale:
            known[f"by{have}"] = np.array([1, 1, 2, want / have], np.float32)
        else:
            known[f"by{have}"] = np.array([2, 3, 4, want], np.int64)
        operands = [f"x{have}", "", f"by{have}"] if by_scale else [f"x{have}", "", "", f"by{have}"]
        attrs = {"mode": "linear", "coordinate_transformation_mode": transform}
        nodes.append(helper.make_node("Resize", operands, [f"{have}_to_{want}"], **attrs))
    return model_of(18, nodes, inputs, **known), inputs


@pytest.mark.parametrize("by_scale", [False, True])
@pytest.mark.parametrize("transform", ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
def test_linear_resizes_are_those_of_onnx_runtime(transform: str, by_scale: bool) -> None:
    check(*model(transform, by_scale))


def test_weights_keep_their_digits() -> None:
    line = np.random.default_rng(6).standard_normal((1, 1, 1, 300), np.float32).repeat(2, axis=2)
    node = helper.make_node(
        "Resize", ["x", "", "", "size"], ["y"], mode="linear", coordinate_transformation_mode="align_corners"
    )
    compiled = fusion.compile(
        model_of(18, [node], {"x": line}, size=np.array([1, 1, 2, 1000], np.int64)), cache=False, threads=1
    )
    places = np.arange(1000) * (299 / 999)
    want = np.interp(places, np.arange(300), line[0, 0, 0].astype(np.float64))
    (found,) = compiled(line)
    assert np.abs(found - want).max() < 2e-6


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_corners_of_a_single_row_are_aligned(mode: str) -> None:
    """TVM divided by zero, its size less one."""
    node = helper.make_node(
        "Resize", ["x", "", "", "size"], ["y"], mode=mode, coordinate_transformation_mode="align_corners"
    )
    inputs = {"x": np.random.default_rng(7).standard_normal((1, 2, 1, 5), np.float32)}
    check(model_of(18, [node], inputs, size=np.array([1, 2, 1, 9], np.int64)), inputs)
