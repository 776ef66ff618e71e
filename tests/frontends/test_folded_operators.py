"""Operators on constants alone are computed while compiling, as ONNX Runtime would compute them in every run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, helper

import fusion
from fusion.frontends import import_model
from tests.frontends.against_onnxruntime import check, model_of, onnxruntime_runs
from tests.passes.modules import names

RANDOM = np.random.default_rng(5)
TABLE = RANDOM.standard_normal((5, 6, 7), dtype="float32")
X = {"x": np.array([2.0], "float32")}
LAST_OPSET = 18


def numbers(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape, dtype="float32")


def scaled(operator: str, *operands: np.ndarray, **attributes: Any) -> tuple[list[NodeProto], dict[str, np.ndarray]]:
    """Return an operator on constants, times the model's input, and the constants."""
    weights = {f"w{place}": operand for place, operand in enumerate(operands)}
    outputs = ["made", "mean", "variance"] if attributes.get("training_mode") else ["made"]
    node = helper.make_node(operator, list(weights), outputs, **attributes)
    return [node, helper.make_node("Mul", ["made", "x"], ["y"])], weights


def is_computed_once(operator: str, *operands: np.ndarray, opset: int = LAST_OPSET, **attributes: Any) -> bool:
    """Check a model of `operator` on constants against ONNX Runtime; return whether no run computes it."""
    nodes, weights = scaled(operator, *operands, **attributes)
    model = model_of(opset, nodes, X, **weights)
    del model.graph.output[:-1]
    check(model, X)
    imported = import_model(model).mod
    assert imported is not None
    return names(imported) == ["multiply"]


def moments(channels: int) -> list[np.ndarray]:
    return [numbers(channels), numbers(channels), numbers(channels), np.abs(numbers(channels)) + np.float32(0.1)]


@pytest.mark.parametrize("training", [0, 1])
def test_weights_that_are_standardised(training: int) -> None:
    assert is_computed_once("BatchNormalization", numbers(1, 6, 40), *moments(6), training_mode=training)


def test_the_moments_given_are_those_of_older_opsets() -> None:
    """The reference implementation takes the batch's."""
    nodes, weights = scaled("BatchNormalization", numbers(1, 6, 40), *moments(6))
    model = model_of(9, nodes, X, **weights)
    del model.graph.output[:-1]
    check(model, X)


@pytest.mark.parametrize("axis", [-2, -1, 0, 1])
def test_layers_that_are_normalised(axis: int) -> None:
    image = numbers(4, 5)
    assert is_computed_once("LayerNormalization", image, *(numbers(*image.shape[axis:]) for _ in range(2)), axis=axis)


def test_instances_that_are_normalised() -> None:
    assert is_computed_once("InstanceNormalization", numbers(2, 3, 9), numbers(3), numbers(3))


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("below_zero", [False, True])
def test_rows_that_are_written(reduction: str, below_zero: bool) -> None:
    places = RANDOM.permuted(np.stack(np.indices((5, 6)), -1).reshape(-1, 2), axis=0)[:12].reshape(3, 4, 2)
    unlike = np.unique(places.reshape(-1, 2), axis=0).reshape(-1, 2) - (np.array([5, 6]) if below_zero else 0)
    assert is_computed_once("ScatterND", TABLE, unlike, numbers(len(unlike), 7), reduction=reduction)


@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("reduction", ["none", "add", "mul"])
def test_elements_that_are_written(reduction: str, axis: int) -> None:
    places = np.argsort(numbers(4, 4, 4), axis=axis)
    assert is_computed_once("ScatterElements", TABLE, places, numbers(4, 4, 4), axis=axis, reduction=reduction)


@pytest.mark.parametrize(
    ("operator", "operands"),
    [
        ("GatherElements", (TABLE, np.full((1, 1, 1), 5))),
        ("ScatterElements", (TABLE, np.full((1, 1, 1), -6), numbers(1, 1, 1))),
        ("ScatterND", (TABLE, np.array([[5]]), numbers(1, 6, 7))),
    ],
)
def test_an_index_outside_is_an_error_of_every_run(operator: str, operands: tuple[np.ndarray, ...]) -> None:
    nodes, weights = scaled(operator, *operands)
    model = model_of(LAST_OPSET, nodes, X, **weights)
    with pytest.raises(Exception, match=r"indic|index"):
        onnxruntime_runs(model, X)
    with pytest.raises(fusion.FusionError):
        fusion.compile(model, threads=1, wait=True).run(X)


def test_tables_of_relative_positions_are_written_while_compiling() -> None:
    """38,809 rows were as dear to the reference implementation as a budget for all nodes allows."""
    side = 197
    places = np.stack(np.indices((side, side)), -1)
    assert is_computed_once("ScatterND", np.zeros((side, side), "float32"), places, numbers(side, side))
