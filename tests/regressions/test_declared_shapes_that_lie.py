"""A shape that the model declares and its nodes do not compute: ONNX Runtime's result or an error, no other tensor."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import fusion
from fusion.errors import ExecutionError
from fusion.frontends import import_model
from tests.fuzz.engines import run_onnxruntime

pytestmark = pytest.mark.unoptimised

X = np.arange(12, dtype=np.float32).reshape(3, 4)
BOXES = np.array([[[0, 0, 1, 1], [0, 0, 2, 2], [5, 5, 6, 6], [0, 0, 1, 1]]], dtype=np.float32)
SCORES = np.array([[[4, 3, 2, 1]]], dtype=np.float32)


def row(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


# Operator, its operands, its attributes, the right shape of its first result, and another that its data might give.
CASES: dict[str, tuple[str, tuple[np.ndarray, ...], dict[str, Any], list[int], list[int]]] = {
    "compress": ("Compress", (X, np.array([1, 0, 1, 1], dtype=bool)), {"axis": 1}, [3, 3], [3, 2]),
    "tile": ("Tile", (X, row(2, 1)), {}, [6, 4], [9, 4]),
    "expand": ("Expand", (X, row(2, 3, 1)), {}, [2, 3, 4], [5, 3, 4]),
    "reshape": ("Reshape", (X, row(-1, 3)), {}, [4, 3], [2, 6]),
    "squeeze": ("Squeeze", (X[None, :, None], row(-2)), {}, [1, 3, 4], [3, 1, 4]),
    "unsqueeze": ("Unsqueeze", (X, row(0)), {}, [1, 3, 4], [3, 1, 4]),
    "range": ("Range", tuple(np.array(v, dtype=np.float32) for v in (0, 5, 2)), {}, [3], [7]),
    "topk": ("TopK", (X, row(2)), {}, [3, 2], [3, 3]),
    "slice": ("Slice", (X, row(0, 0), row(2, 2)), {}, [2, 2], [3, 3]),
    "sum": ("ReduceSum", (X, row(-2)), {}, [1, 4], [3, 1]),
    "pad": ("Pad", (X, row(1, 0, 0, 0)), {}, [4, 4], [5, 4]),
    "onehot": ("OneHot", (row(0, 1), row(4), X[0, :2]), {}, [2, 4], [2, 6]),
    "fill": ("ConstantOfShape", (row(2, 2),), {}, [2, 2], [4, 4]),
    "nonzero": ("NonZero", (X,), {}, [2, 11], [2, 5]),
    "boxes": ("NonMaxSuppression", (BOXES, SCORES, row(2)), {}, [2, 3], [4, 3]),
    "resize": ("Resize", (X, None, None, row(6, 8)), {}, [6, 8], [3, 3]),
    "crop": ("CenterCropPad", (X, row(2, 2)), {}, [2, 2], [5, 5]),
    "split": ("Split", (X, row(1, 2)), {}, [1, 4], [2, 4]),
    "relu": ("Relu", (X,), {}, [3, 4], [2, 2]),
}
# Where what runs tells the size itself, and nothing relied on the declaration.
RIGHT = frozenset({"compress", "nonzero", "relu"})


def model(name: str, claim: list[int]) -> tuple[onnx.ModelProto, Mapping[str, np.ndarray]]:
    """Return a model of one node whose first result is declared as `claim`, and its inputs."""
    op, operands, attributes, _, _ = CASES[name]
    values = {f"i{at}": operand for at, operand in enumerate(operands) if operand is not None}
    inputs = [f"i{at}" if operand is not None else "" for at, operand in enumerate(operands)]
    outputs = ["y", "z"] if op in ("TopK", "Split") else ["y"]
    element = TensorProto.INT64 if op in ("NonZero", "NonMaxSuppression") else TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node(op, inputs, outputs, name="node", **attributes)],
        "lie",
        [
            helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for key, value in values.items()
        ],
        [helper.make_tensor_value_info("y", element, claim)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), values


def from_onnxruntime(made: onnx.ModelProto, values: Mapping[str, np.ndarray]) -> np.ndarray:
    options = ort.SessionOptions()
    options.log_severity_level = 4  # it warns of the shape
    return np.asarray(ort.InferenceSession(made.SerializeToString(), options).run(["y"], dict(values))[0])


@pytest.mark.parametrize("name", sorted(CASES))
def test_lie(name: str) -> None:
    made, values = model(name, CASES[name][4])
    module = fusion.compile(made, threads=1)
    if name in RIGHT:
        np.testing.assert_array_equal(module.run(values)["y"], from_onnxruntime(made, values))
        return
    with pytest.raises(ExecutionError):
        module.run(values)


@pytest.mark.parametrize("name", sorted(CASES.keys() - RIGHT))
def test_truth(name: str) -> None:
    made, values = model(name, CASES[name][3])
    found = fusion.compile(made, threads=1).run(values)["y"]
    np.testing.assert_array_equal(found, from_onnxruntime(made, values))


def test_error_names_the_node() -> None:
    made, values = model("tile", CASES["tile"][4])
    with pytest.raises(ExecutionError, match="size") as caught:
        fusion.compile(made, threads=1).run(values)
    assert caught.value.where == "Tile 'node'"
    assert caught.value.why == "the shapes in the model need 3: it is 2"


def test_shape_of_what_is_declared() -> None:
    """Nothing else reads the value, so that the shape is ONNX Runtime's own, whatever is declared."""
    made, values = model("boxes", CASES["boxes"][4])
    declared = made.graph.output[0]
    made.graph.value_info.append(declared)
    made.graph.node.append(helper.make_node("Shape", ["y"], ["s"]))
    made.graph.output[0].CopyFrom(helper.make_tensor_value_info("s", TensorProto.INT64, [2]))
    assert {item.op for item in import_model(made).fallbacks} == {"NonMaxSuppression", "Shape"}
    expected = np.array(CASES["boxes"][3])
    np.testing.assert_array_equal(fusion.compile(made, threads=1, wait=True).run(values)["s"], expected)


def test_a_range_without_a_step_is_refused_where_nothing_is_declared_to_come() -> None:
    model = onnx.parser.parse_model(
        """
        <ir_version: 10, opset_import: ["": 23]>
        graph (int64 first, int64 end, int64 step) => (int64[0] y) { y = Range (first, end, step) }
        """
    )
    compiled, zero = fusion.compile(model), np.array(0)
    assert compiled.run({"first": np.array(3), "end": zero, "step": np.array(1)})["y"].size == 0
    with pytest.raises(ExecutionError):
        compiled.run({"first": np.array(1000), "end": zero, "step": zero})


@pytest.mark.parametrize(
    ("dims", "declared", "axes"),
    [
        ((1, 3, 1, 5), (1, 3, 1, 1, 5), [(-2,), (2,), (3,), (0,), (9,)]),
        ((3, 4), (1, 3, 1, 4), [(0, 2), (-2, -4), (0, 0), (2, 2), (0, 9), (1, 2)]),
        ((), (1,), [(0,), (-1,), (1,)]),
        ((1, 1), (1, 1, 1), [(0,), (2,), (-3,), (3,), (-4,)]),
    ],
    ids=["several fit", "two", "scalar", "all fit"],
)
def test_axes_that_give_the_declared_shape(
    dims: tuple[int, ...], declared: tuple[int, ...], axes: list[tuple[int, ...]]
) -> None:
    """Of an Unsqueeze by axes that the run names, any that ONNX Runtime takes and that give the declared shape."""
    x = np.arange(prod(dims), dtype=np.float32).reshape(dims)
    node = helper.make_node("Unsqueeze", ["x", "axes"], ["y"])
    graph = helper.make_graph(
        [node],
        "declared",
        [_float("x", dims), helper.make_tensor_value_info("axes", TensorProto.INT64, [len(axes[0])])],
        [_float("y", declared)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    compiled = fusion.compile(model, strict=True)
    for named in axes:
        feeds = {"x": x, "axes": np.array(named)}
        expected = run_onnxruntime(model, feeds).values.get("y")
        if expected is None or expected.shape != declared:
            with pytest.raises(ExecutionError):
                compiled.run(feeds)
        else:
            np.testing.assert_array_equal(compiled.run(feeds)["y"], expected)


def _float(name: str, shape: tuple[int, ...]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
