"""The kernel of a check and its form in NumPy: the same values pass, as the same, and the same errors are raised."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

import fusion
from fusion.errors import ExecutionError
from fusion.guards.check import check
from fusion.guards.in_numpy import first_failure, kept
from fusion.guards.kinds import Guard, operand_guard, size_guard
from tests.regressions.relax_models import module

WHERE = "an operator"
SHAPE = (5, 0, 7)
KINDS: dict[str, tuple[Guard, str]] = {
    "index": (operand_guard("index", WHERE, [0], SHAPE), "int64"),
    "narrow index": (operand_guard("index", WHERE, [0], (200,)), "int8"),
    "index of one axis of all": (operand_guard("index", WHERE, [], (5, 7)), "int32"),
    "tuple of indices": (operand_guard("index", WHERE, [0, 2], SHAPE), "int64"),
    "index into nothing": (operand_guard("index", WHERE, [1], SHAPE), "int64"),
    "position": (operand_guard("position", WHERE, [0], SHAPE), "int64"),
    "length": (operand_guard("length", WHERE, [2], SHAPE), "int32"),
    "divisor": (operand_guard("divisor", WHERE, [], SHAPE), "int32"),
    "box": (operand_guard("box", WHERE, [0], SHAPE), "float32"),
    "size": (size_guard(WHERE, 0, 5), "int64"),
}
ODD = {"i": (-128, -6, -5, -1, 0, 4, 5, 6, 7, 8, 127), "f": (-1.0, 5.0, np.nan, np.inf, -np.inf, 0.5)}


def rows(guard: Guard, dtype: str) -> np.ndarray:
    """Return rows of which most hold."""
    columns = len(guard.conditions)
    if dtype == "float32":
        return np.ones((3, columns), dtype)
    return np.full((3, columns), guard.conditions[0].largest if guard.kind == "size" else 1, dtype)


@pytest.mark.parametrize("name", KINDS)
def test_they_say_the_same(name: str) -> None:
    guard, dtype = KINDS[name]
    good = rows(guard, dtype)
    compiled = fusion.compile(
        module(lambda builder, x: check(builder, x, guard), {"x": (good.shape, dtype)}), threads=1, cache=False
    )
    outcomes = set()
    for value in ODD[np.dtype(dtype).kind]:
        for place in ((0, 0), (2, -1)):
            values = good.copy()
            values[place] = value
            error = first_failure(values, guard)
            outcomes.add(error is None)
            if error is None:
                (found,) = compiled(values)
                np.testing.assert_array_equal(found, kept(values, guard))
                continue
            with pytest.raises(ExecutionError) as caught:
                compiled(values)
            assert (caught.value.what, caught.value.where, caught.value.why) == (error.what, error.where, error.why)
    assert (False in outcomes) == (name != "narrow index"), "none of its dtype is outside"
    assert (True in outcomes) == (name != "index into nothing")


def test_the_error_is_of_the_first_in_memory() -> None:
    guard = operand_guard("box", WHERE, [0], SHAPE)
    boxes = np.ones((3, 5), "float32")
    boxes[2, 0], boxes[1, 3] = 9, np.inf
    error = first_failure(boxes, guard)
    assert error is not None
    assert error.why == "it is inf"


def test_values_are_left_as_they_are() -> None:
    indices = np.array([-1, 2])
    np.testing.assert_array_equal(kept(indices, operand_guard("index", WHERE, [0], SHAPE)), [4, 2])
    np.testing.assert_array_equal(indices, [-1, 2])


def test_constants_that_hold_are_moved_at_once() -> None:
    builder, guard = relax.BlockBuilder(), operand_guard("index", WHERE, [0], (200,))
    moved = check(builder, relax.const(np.array([-1, 2], "int8")), guard)
    np.testing.assert_array_equal(moved.value.numpy(), [199, 2])
    assert str(moved.ty.dtype) == "int64"
    assert not builder.get().functions
