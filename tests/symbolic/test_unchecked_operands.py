"""Places and divisors that follow from sizes, which runs do not check: at sizes where they would have to, a model has
another form."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import fusion
from fusion.declined import Declined
from fusion.errors import ExecutionError
from fusion.frontends import import_model
from fusion.symbolic.outline import check_alike, outline


def model(*behind: onnx.NodeProto, number: int) -> onnx.ModelProto:
    """Return rows of four integers, any many of a batch, with how many they are and `number` as "length" and
    "number"."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["length"]),
        *behind,
    ]
    x, made = (
        helper.make_tensor_value_info(name, TensorProto.INT64, shape)
        for name, shape in (("x", [2, "n", 4]), ("made", [None] * 3))
    )
    held = [numpy_helper.from_array(np.array([value]), name) for name, value in (("one", 1), ("number", number))]
    graph = helper.make_graph(nodes, "g", [x], [made], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def rows(count: int) -> np.ndarray:
    return np.random.default_rng(count).integers(1, 100, (2, count, 4))


def test_a_row_counted_from_the_last_may_lie_before_the_first() -> None:
    """Of two rows the third from the last is, to ONNX, the last: it counts from the end once more."""
    behind = [
        helper.make_node("Sub", ["length", "number"], ["third"]),
        helper.make_node("Concat", ["one", "third"], ["places"], axis=0),
        helper.make_node("Gather", ["x", "places"], ["made"], axis=1),
    ]
    module = fusion.compile(model(*behind, number=3), wait=True, cache=False, threads=1)
    for count in (40, 3, 17, 2):
        np.testing.assert_array_equal(module(rows(count))[0], rows(count)[:, [1, count - 3]])
    with pytest.raises(ExecutionError, match="outside its axis"):
        module(rows(1))
    assert "n 3 to 4096" in module.explain()


def test_a_row_behind_the_last_is_refused() -> None:
    behind = [helper.make_node("Gather", ["x", "number"], ["made"], axis=1)]
    module = fusion.compile(model(*behind, number=20), wait=True, cache=False, threads=1)
    for count in (40, 21):
        np.testing.assert_array_equal(module(rows(count))[0], rows(count)[:, [20]])
    for count in (20, 1):
        with pytest.raises(ExecutionError, match="outside its axis"):
            module(rows(count))


def test_a_row_counted_from_the_end_before_the_first_is_refused() -> None:
    """It was the first row."""
    behind = [helper.make_node("Gather", ["x", "number"], ["made"], axis=1)]
    module = fusion.compile(model(*behind, number=-20), wait=True, cache=False, threads=1)
    for count in (40, 20):
        np.testing.assert_array_equal(module(rows(count))[0], rows(count)[:, [count - 20]])
    for count in (19, 5, 1):
        with pytest.raises(ExecutionError, match="outside its axis"):
            module(rows(count))
    assert "n 20 to 4096" in module.explain()


def test_a_divisor_that_is_0_at_one_size_between_others_is_refused_there() -> None:
    """It ended the process."""
    behind = [
        helper.make_node("Sub", ["length", "number"], ["less"]),
        helper.make_node("Div", ["x", "less"], ["made"]),
    ]
    module = fusion.compile(model(*behind, number=3), wait=True, cache=False, threads=1)
    for count in (40, 4, 2, 1):
        np.testing.assert_array_equal(module(rows(count))[0], np.trunc(rows(count) / (count - 3)))
    with pytest.raises(ExecutionError, match="divided by zero"):
        module(rows(3))


def test_operators_of_one_type_are_not_alike() -> None:
    found = [outline(import_model(model(helper.make_node(name, ["x", "x"], ["made"]), number=0), {"x": (2, 5, 4)}).mod)
             for name in ("Add", "Mul")]  # fmt: skip
    with pytest.raises(Declined, match="is another one at other sizes"):
        check_alike(found)
