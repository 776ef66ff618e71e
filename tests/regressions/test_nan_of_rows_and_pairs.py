"""NaN passes through maxima, minima, comparisons and sorting wherever it stands; it once did in the last place only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnxruntime as ort
import pytest
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper, shape_inference

import fusion

Arrays = dict[str, np.ndarray]


def _info(name: str, array: np.ndarray) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def outputs_of(nodes: Sequence[NodeProto], inputs: Arrays, weights: Arrays | None = None) -> tuple[bytes, Arrays]:
    """Return a model of `nodes`, each of whose outputs is one of the model, and what fusion makes of `inputs`."""
    graph = helper.make_graph(
        list(nodes),
        "g",
        [_info(name, array) for name, array in inputs.items()],
        [],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    known = {value.name: value for value in shape_inference.infer_shapes(model).graph.value_info}
    model.graph.output.extend(known[name] for node in nodes for name in node.output)
    return model.SerializeToString(), fusion.compile(model).run(inputs)


def rows(dtype: str, width: int = 19) -> np.ndarray:
    """Return a row with NaN in each place, and rows of one number alone: those that a reduction starts from too."""
    with_nan = np.where(np.eye(width, dtype=bool), np.nan, np.arange(width) % 7 - 3)
    alone = [np.full(width, number) for number in (np.nan, np.inf, -np.inf, 0.0)]
    return np.stack([*with_nan, *alone]).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_rows(dtype: str) -> None:
    """ONNX Runtime's results depend on the place of NaN; NumPy's do not."""
    x = rows(dtype)
    nodes, expected = [], {}
    for axis, name in ((1, "x"), (0, "t")):
        data = x if axis else np.ascontiguousarray(x.T)
        for op, function in (("ReduceMax", np.max), ("ReduceMin", np.min)):
            nodes.append(helper.make_node(op, [name, f"axis{axis}"], [f"{op}{axis}"], keepdims=0))
            expected[f"{op}{axis}"] = function(data, axis=axis)
        for op, place in (("ArgMax", np.argmax), ("ArgMin", np.argmin)):
            for last in (0, 1):
                made = f"{op}{axis}{last}"
                nodes.append(helper.make_node(op, [name], [made], axis=axis, keepdims=0, select_last_index=last))
                found = place(np.flip(data, axis) if last else data, axis=axis)
                expected[made] = data.shape[axis] - 1 - found if last else found
    axes = {"axis0": np.array([0]), "axis1": np.array([1])}
    _, made = outputs_of(nodes, {"x": x, "t": np.ascontiguousarray(x.T)}, axes)
    for name, want in expected.items():
        np.testing.assert_array_equal(made[name], want, name)


def test_places_of_integers() -> None:
    """Rows of the number that the reduction started from had no place: -1, or the length of the row."""
    nodes, inputs = [], {}
    for dtype in ("int8", "uint8", "int32", "int64"):
        ends = np.iinfo(dtype)
        inputs[dtype] = np.array([[ends.min] * 5, [ends.max] * 5, [ends.min, ends.max] * 2 + [ends.min]], dtype)
        for op in ("ArgMax", "ArgMin"):
            for last in (0, 1):
                made = f"{op}_{dtype}_{last}"
                nodes.append(helper.make_node(op, [dtype], [made], axis=1, select_last_index=last))
    model, made = outputs_of(nodes, inputs)
    for name, want in zip(made, ort.InferenceSession(model).run(None, inputs), strict=True):
        np.testing.assert_array_equal(made[name], want, name)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_sorted(dtype: str) -> None:
    x = np.array([[np.nan, np.inf, -np.inf, 0, -0.0, 1, 1, -2, np.nan, 3, -3]], dtype)
    nodes = [
        helper.make_node("TopK", ["x", "k"], [f"values{down}", f"places{down}"], largest=down) for down in (0, 1)
    ]  # fmt: skip
    _, made = outputs_of(nodes, {"x": x}, {"k": np.array([11])})
    wide = x.astype("float64")
    ranks = np.where(np.isnan(wide), np.inf, np.clip(wide, -1e9, 1e9))
    for down in (0, 1):
        places = np.argsort(-ranks if down else ranks, axis=1, kind="stable")
        np.testing.assert_array_equal(made[f"places{down}"], places)
        np.testing.assert_array_equal(made[f"values{down}"], np.take_along_axis(x, places, 1))


def pairs(dtype: str) -> Arrays:
    values = np.array([np.nan, np.inf, -np.inf, 0.0, 1.5, -2.0], dtype)
    return {"a": np.repeat(values, 6), "b": np.tile(values, 6)}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_pairs(dtype: str) -> None:
    nodes = [helper.make_node(op, ["a", "b"], [op]) for op in ("Max", "Min")]
    nodes.append(helper.make_node("Max", ["a", "b", "a"], ["of_three"]))
    nodes.append(helper.make_node("Clip", ["a", "low", "high"], ["clipped"]))
    for op in ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"):
        nodes += [helper.make_node(op, ["a", "b"], [op]), helper.make_node("Not", [op], [f"not_{op}"])]
    nodes.append(helper.make_node("Cast", ["a"], ["as_bool"], to=TensorProto.BOOL))
    inputs = {**pairs(dtype), "low": np.array(-1, dtype), "high": np.array(2, dtype)}
    model, made = outputs_of(nodes, inputs)
    for name, want in zip(made, ort.InferenceSession(model).run(None, inputs), strict=True):
        np.testing.assert_array_equal(made[name], want, name)
