"""Types that follow from shapes alone are those that onnx infers."""

from __future__ import annotations

import itertools

import onnx
import pytest
from onnx import TensorProto, helper

from fusion.frontends.onnx.infer_elementwise import _BINARY, _COMPARISONS, _UNARY, infer_elementwise
from fusion.frontends.onnx.scope import ValueScope

OPSET = 20
SHAPES = ((), (1,), (3,), (2, 3), (2, 1), (1, 3), (4, 1, 3), (0, 3), (2, 4))


def told(op: str, element: int, *shapes: tuple[int, ...]) -> tuple[onnx.TypeProto | None, onnx.TypeProto | None]:
    """Return what we say of the type of a node's result, and what onnx infers."""
    names = [f"x{place}" for place in range(len(shapes))]
    types = {name: helper.make_tensor_type_proto(element, shape) for name, shape in zip(names, shapes, strict=True)}
    node = helper.make_node(op, names, ["y"])
    schema = onnx.defs.get_schema(op, OPSET)
    try:
        inferred = onnx.shape_inference.infer_node_outputs(
            schema, node, types, opset_imports=[helper.make_opsetid("", OPSET)]
        )
    except onnx.shape_inference.InferenceError:
        inferred = {}
    return infer_elementwise(node, OPSET, ValueScope(types=types)).get("y"), inferred.get("y")


@pytest.mark.parametrize("op", sorted(_UNARY))
def test_operators_of_one_operand(op: str) -> None:
    for shape in SHAPES:
        ours, theirs = told(op, TensorProto.FLOAT, shape)
        assert ours is not None
        assert ours == theirs


@pytest.mark.parametrize("op", sorted(_BINARY | _COMPARISONS))
@pytest.mark.parametrize("element", [TensorProto.FLOAT, TensorProto.INT64])
def test_operators_of_two_operands(op: str, element: int) -> None:
    for left, right in itertools.product(SHAPES, repeat=2):
        ours, theirs = told(op, element, left, right)
        assert ours == theirs


def test_what_is_not_known_is_left_to_onnx() -> None:
    node = helper.make_node("Add", ["x", "y"], ["z"])
    known, unknown = (helper.make_tensor_type_proto(TensorProto.FLOAT, shape) for shape in ([2], [None]))
    assert infer_elementwise(node, OPSET, ValueScope(types={"x": known, "y": known}))
    for types in ({"x": known, "y": unknown}, {"x": unknown, "y": known}, {"x": known}, {}):
        assert not infer_elementwise(node, OPSET, ValueScope(types=types))
    assert not infer_elementwise(node, 6, ValueScope(types={"x": known, "y": known}))
