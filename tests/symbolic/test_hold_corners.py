"""Two sizes that are small together, of which each alone, beside the sizes that passes see, is none too small."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import fusion

FLOAT = TensorProto.FLOAT


def compiled(nodes: list[onnx.NodeProto], dims: list[int | str], rank: int, **held: list[int]) -> fusion.CompiledModule:
    made = helper.make_tensor_value_info("made", FLOAT, [None] * rank)
    constants = [numpy_helper.from_array(np.array(value), name) for name, value in held.items()]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", FLOAT, dims)], [made], constants)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return fusion.compile(proto, wait=True, cache=False, threads=1, hot_shapes=0)


def test_the_best_of_all_pixels_are_no_more_than_these() -> None:
    """A detector takes the best 1,000 boxes: of a picture of 9 x 11 with three at each pixel, the form for all sizes
    returned 1,000, most of which it had read behind the end of what it was given."""
    nodes = [
        helper.make_node("Reshape", ["x", "row"], ["scores"]),
        helper.make_node("Shape", ["scores"], ["count"]),
        helper.make_node("Min", ["count", "most"], ["k"]),
        helper.make_node("TopK", ["scores", "k"], ["made", "places"]),
    ]
    module = compiled(nodes, [1, 3, "h", "w"], 1, row=[-1], most=[1000])
    for height, width in ((40, 30), (9, 11), (20, 21), (17, 19)):
        x = np.random.default_rng(0).permutation(3 * height * width).reshape(1, 3, height, width).astype(np.float32)
        np.testing.assert_array_equal(module(x)[0], np.sort(x.ravel())[::-1][:1000])
    assert [form.opened is not None for form in module.specializations] == [True], module.explain()


def test_a_slice_ends_with_its_axis_or_where_another_size_says() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["n"]),
        helper.make_node("Sub", ["n", "two"], ["end"]),
        helper.make_node("Slice", ["x", "zero", "end", "zero"], ["made"]),
    ]
    module = compiled(nodes, ["m", "n"], 2, zero=[0], one=[1], two=[2])
    for shape in ((5, 40), (10, 6), (29, 31), (3, 4)):
        x = np.random.default_rng(0).random(shape, np.float32)
        np.testing.assert_array_equal(module(x)[0], x[: shape[1] - 2])
    assert "m 0 to 29, n 31 to 4096" in module.explain()


def test_a_place_that_follows_from_two_sizes_is_in_its_axis() -> None:
    """What runs do not check at the sizes that passes see: a row of a batch of one was read before its first."""
    nodes = [
        helper.make_node("Reshape", ["x", "rows"], ["flat"]),
        helper.make_node("Shape", ["flat"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["count"]),
        helper.make_node("Sub", ["count", "six"], ["sixth"]),
        helper.make_node("Concat", ["sixth", "zero"], ["places"], axis=0),
        helper.make_node("Gather", ["flat", "places"], ["made"], axis=0),
    ]
    module = compiled(nodes, ["m", "n", 4], 2, rows=[-1, 4], zero=[0], six=[6])
    for shape in ((5, 40, 4), (1, 5, 4), (1, 4, 4), (2, 3, 4), (1, 6, 4)):
        x = np.random.default_rng(0).random(shape, np.float32)
        flat = x.reshape(-1, 4)
        np.testing.assert_array_equal(module(x)[0], flat[[len(flat) - 6, 0]])
    assert "m 1 to 65536, n 6 to 4096" in module.explain()
