"""Constants that are the same where passes see a model: at other sizes they may be other ones."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import fusion


def model(axis: int, operator: str, number: int) -> onnx.ModelProto:
    """Return rows times what the operator makes of how many there are along an axis and a number."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "axis"], ["size"]),
        helper.make_node(operator, ["size", "number"], ["factor"]),
        helper.make_node("Cast", ["factor"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["x", "float"], ["made"]),
    ]
    x, made = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["m", "n"]) for name in ("x", "made"))
    held = [numpy_helper.from_array(np.array([value]), name) for name, value in (("axis", axis), ("number", number))]
    graph = helper.make_graph(nodes, "g", [x], [made], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(
    ("axis", "operator", "number", "sizes"),
    [
        (0, "Div", 4, "m 0 to 3, n 0 to 4096"),
        (1, "Div", 100, "m 0 to 65536, n 0 to 47"),
        (1, "Greater", 100, "m 0 to 65536, n 0 to 47"),
        (1, "Min", 4, "m 0 to 65536, n 4 to 4096"),
    ],
)
def test_what_sizes_say_up_to_some_of_them_bounds_a_form(axis: int, operator: str, number: int, sizes: str) -> None:
    """A batch divided by four is none at both sizes that passes see: larger ones were multiplied by that too."""
    module = fusion.compile(model(axis, operator, number), wait=True, cache=False, threads=1, hot_shapes=0)
    made = {"Div": np.floor_divide, "Greater": np.greater, "Min": np.minimum}[operator]
    for shape in ((2, 31), (1, 1), (3, 2), (4, 99), (9, 250)):
        x = np.random.default_rng(0).random(shape, np.float32)
        np.testing.assert_array_equal(module(x)[0], x * made(shape[axis], number).astype(np.float32))
    assert sizes in module.explain()


@pytest.mark.parametrize("operator", ["Add", "Where"])
def test_what_decides_whether_there_is_anything_is_no_constant_of_nothing(operator: str) -> None:
    """A sum of none, to which what is 1 for all other lengths was added: an import at 0 leaves all of it out."""
    behind = {
        "Add": [helper.make_node("Add", ["sum", "float"], ["made"])],
        "Where": [helper.make_node("Where", ["is_any", "sum", "seven"], ["made"])],
    }
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["size"]),
        helper.make_node("Greater", ["size", "zero"], ["is_any"]),
        helper.make_node("Cast", ["is_any"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["x", "one"], ["sum"], keepdims=0),
        *behind[operator],
    ]
    x, made = (helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
               for name, dims in (("x", ["m", "n"]), ("made", ["m"])))  # fmt: skip
    held = [numpy_helper.from_array(np.array([value]), name) for name, value in (("one", 1), ("zero", 0))]
    held.append(numpy_helper.from_array(np.array([7], np.float32), "seven"))
    graph = helper.make_graph(nodes, "g", [x], [made], held)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    module = fusion.compile(proto, wait=True, cache=False, threads=1, hot_shapes=0)
    for shape in ((2, 31), (3, 0), (0, 3), (1, 1)):
        x = np.ones(shape, np.float32)
        wanted = x.sum(1) + 1 if operator == "Add" else x.sum(1)
        of_none = 0 if operator == "Add" else 7
        np.testing.assert_array_equal(module(x)[0], wanted if shape[1] else np.full(shape[0], of_none, np.float32))
    assert "m 0 to 65536, n 1 to 4096" in module.explain()
