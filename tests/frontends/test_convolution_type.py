"""The type of a convolution that is told here is the one that onnx infers."""

from __future__ import annotations

import random

import onnx
from onnx import TensorProto, helper

from fusion.frontends.onnx.scope import ValueScope
from fusion.frontends.onnx.windows import convolution_type

OPSET = 20
NAMES = ("x", "w", "b")


def told(
    image: tuple[int, ...], weights: tuple[int, ...], element: int = TensorProto.FLOAT, **attributes: object
) -> tuple[onnx.TypeProto | None, onnx.TypeProto | None]:
    """Return what we say of the type of a Conv's result, and what onnx infers."""
    shapes = dict(zip(NAMES, (image, weights, weights[:1]), strict=True))
    types = {name: helper.make_tensor_type_proto(element, shape) for name, shape in shapes.items()}
    node = helper.make_node("Conv", list(NAMES), ["y"], **attributes)
    schema, opsets = onnx.defs.get_schema("Conv", OPSET), [helper.make_opsetid("", OPSET)]
    try:
        inferred = onnx.shape_inference.infer_node_outputs(schema, node, types, opset_imports=opsets)
    except onnx.shape_inference.InferenceError:
        inferred = {}
    return convolution_type(node, ValueScope(types=types)).get("y"), inferred.get("y")


def test_drawn_convolutions() -> None:
    seed = random.randrange(1 << 32)
    drawn = random.Random(seed)
    said = 0
    for _ in range(400):
        rank, group = drawn.choice((1, 2, 2, 3)), drawn.choice((1, 1, 2))
        image = tuple(drawn.choice((0, 1, 2, 5, 8, 13)) for _ in range(rank))
        kernel = tuple(drawn.choice((0, 1, 1, 2, 3, 5)) for _ in range(rank))
        given = {
            "kernel_shape": kernel,
            "strides": [drawn.choice((1, 2, 3)) for _ in range(rank)],
            "dilations": [drawn.choice((1, 1, 2)) for _ in range(rank)],
            "pads": [drawn.choice((-1, 0, 0, 1, 2)) for _ in range(2 * rank)],
        }
        attributes: dict[str, object] = {name: value for name, value in given.items() if drawn.random() < 0.7}
        attributes |= drawn.choice(({}, {}, {"auto_pad": "NOTSET"}, {"auto_pad": ""}))
        element = drawn.choice((TensorProto.FLOAT, TensorProto.FLOAT16))
        shapes = (drawn.choice((0, 1, 4)), 4, *image), (6, 4 // group, *kernel)
        ours, theirs = told(*shapes, element, group=group, **attributes)
        said += ours is not None
        assert ours is None or ours == theirs, f"seed {seed}: {shapes}, {attributes}"
    assert said > 40


def test_what_does_not_fit_or_pads_itself_is_left_to_onnx() -> None:
    image, weights = (1, 4, 9, 9), (6, 4, 3, 3)
    assert told(image, weights)[0] is not None
    for attributes in (
        {"auto_pad": "SAME_UPPER"}, {"auto_pad": "VALID"}, {"strides": [1]}, {"strides": [0, 1]}, {"pads": [1, 1]},
        {"dilations": [1, 1, 1]}, {"kernel_shape": [3, 2]}, {"dilations": [5, 1]},
    ):  # fmt: skip
        assert told(image, weights, **attributes)[0] is None
    empty = helper.make_attribute("pads", [], attr_type=onnx.AttributeProto.INTS)
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    shapes = {"x": image, "w": weights}
    kinds = {name: helper.make_tensor_type_proto(TensorProto.FLOAT, shape) for name, shape in shapes.items()}
    assert convolution_type(node, ValueScope(types=kinds))
    node.attribute.append(empty)
    assert not convolution_type(node, ValueScope(types=kinds))
    assert told(image, weights[:3])[0] is None
    assert told(image[:2], weights[:2])[0] is None


def test_nothing_is_said_of_other_nodes_and_open_sizes() -> None:
    kinds = {name: helper.make_tensor_type_proto(TensorProto.FLOAT, [1, 4, None]) for name in NAMES}
    node = helper.make_node("Conv", list(NAMES), ["y"])
    assert not convolution_type(node, ValueScope(types=kinds))
    assert not convolution_type(helper.make_node("Relu", ["x"], ["y"]), ValueScope(types=kinds))
