"""Operators of the first sets, for which ONNX Runtime has no kernels, were computed by the rules of newer sets."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx import helper

import fusion
from tests.module.small_models import BOOL, FLOAT, model

RNG = np.random.default_rng(0)
X = RNG.random((2, 2, 2), dtype=np.float32) + 1
B = np.array([1.5, 2], np.float32)
ROWS, PLANES = B[:, None], B[:, None, None]
BINARY: dict[str, Callable[..., np.ndarray]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Pow": np.power,
    "Greater": np.greater, "Less": np.less,
}  # fmt: skip


@pytest.mark.parametrize("opset", [1, 6])
def test_broadcast_from_an_axis(opset: int) -> None:
    places = ({}, B), ({"axis": 1}, ROWS), ({"axis": 0}, PLANES)
    nodes = [
        helper.make_node(op, ["x", "b"], [f"{op}{number}"], broadcast=1, **axis)
        for op in BINARY
        for number, (axis, _) in enumerate(places)
    ]
    outputs = [(node.output[0], BOOL if node.op_type in ("Greater", "Less") else FLOAT, None) for node in nodes]
    made = model(nodes, [("x", FLOAT, [2, 2, 2])], outputs, {"b": B})
    made.opset_import[0].version = opset
    found = fusion.compile(made, strict=True, threads=1)(X)
    expected = [function(X, right) for function in BINARY.values() for _, right in places]
    for ours, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, right, rtol=1e-5)


def test_defaults_and_names() -> None:
    image = RNG.standard_normal((1, 2, 2, 2), dtype=np.float32)
    nodes = [
        helper.make_node("Concat", ["x", "x"], ["joined"]),
        helper.make_node("PRelu", ["x", "b"], ["channels"]),
        helper.make_node("PRelu", ["x", "one"], ["all"]),
        helper.make_node("Pad", ["x"], ["padded"], paddings=[0, 0, 1, 0, 0, 0, 0, 1], value=2.0),
    ]
    outputs = [(node.output[0], FLOAT, None) for node in nodes]
    made = model(nodes, [("x", FLOAT, [1, 2, 2, 2])], outputs, {"b": B, "one": B[:1]})
    made.opset_import[0].version = 1
    found = fusion.compile(made, strict=True, threads=1)(image)
    expected = [
        np.concatenate([image, image], axis=1),
        np.where(image < 0, image * PLANES, image),
        np.where(image < 0, image * B[0], image),
        np.pad(image, [(0, 0), (0, 0), (1, 0), (0, 1)], constant_values=2),
    ]
    for ours, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, right, rtol=1e-6)
