"""The first elements of rows, against NumPy: ties, NaN, both zeros, extremes; lists, bins and whole rows."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest
from onnx import ModelProto, helper, numpy_helper, parser

import fusion

pytestmark = pytest.mark.optimised  # loops over thousands of numbers take longer than LLVM
SEED = 20
DTYPES = ("float32", "float16", "int32")
SHAPES = [  # shape, axis, first: a list over blocks and a rest, of all, of one; bins; whole rows; columns
    ((7, 300), 1, 12), ((3, 64), 1, 64), ((40, 33), 1, 1), ((2, 5000), 1, 64), ((1, 3000), 1, 200), ((9, 700), 1, 699),
    ((5, 65), 1, 65), ((4, 400, 6), 1, 30), ((1, 1), 1, 1), ((17, 80), 1, 16),
]  # fmt: skip


def _model(shape: tuple[int, ...], axis: int, first: int) -> ModelProto:
    """Return a model of the first ones, the least and the largest, of three tensors."""
    found = [size if at != axis else first for at, size in enumerate(shape)]
    nodes, inputs, outputs = [], [], []
    for dtype in DTYPES:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        inputs.append(helper.make_tensor_value_info(dtype, kind, shape))
        for largest in (0, 1):
            names = [f"{dtype} {largest}", f"places of {dtype} {largest}"]
            nodes.append(helper.make_node("TopK", [dtype, "k"], names, axis=axis, largest=largest))
            outputs += [
                helper.make_tensor_value_info(name, each, found) for name, each in zip(names, (kind, 7), strict=True)
            ]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(np.array([first]), "k")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def _data(shape: tuple[int, ...], dtype: str, random: np.random.Generator, kind: str) -> np.ndarray:
    x = random.standard_normal(shape) * 100
    if kind == "ties":
        x = np.round(x / 60)
    if dtype.startswith("float"):
        special = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0])
        x = np.where(random.random(shape) < 0.1, random.choice(special, shape), x) if kind == "special" else x
        return x.astype(dtype)
    limits = np.iinfo(dtype)
    x = x.astype(dtype)
    return np.where(random.random(shape) < 0.2, random.choice([limits.min, limits.max], shape), x).astype(dtype)


def _expected(x: np.ndarray, axis: int, first: int, largest: int) -> np.ndarray:
    """Return the places of the first elements: a stable sort, NaN above all numbers."""
    if not largest:
        return np.argsort(x, axis, kind="stable").take(range(first), axis)
    back = np.argsort(np.flip(x, axis), axis, kind="stable")
    return (x.shape[axis] - 1 - np.flip(back, axis)).take(range(first), axis)


@pytest.mark.parametrize(("shape", "axis", "first"), SHAPES)
def test_first_of_rows(shape: tuple[int, ...], axis: int, first: int) -> None:
    random = np.random.default_rng(SEED)
    module = fusion.compile(_model(shape, axis, first), threads=2, cache=False, wait=True)
    assert "on ONNX Runtime" not in str(module.explain())
    for kind in ("any", "ties", "special", "up", "down"):
        data = {dtype: _data(shape, dtype, random, kind) for dtype in DTYPES}
        if kind in ("up", "down"):
            order = (slice(None),) * axis + (slice(None, None, 1 if kind == "up" else -1),)
            data = {dtype: np.sort(x, axis)[order] for dtype, x in data.items()}
        made = module.run(data)
        for dtype, x in data.items():
            for largest in (0, 1):
                wanted = _expected(x, axis, first, largest)
                name = f"{dtype} {largest}"
                np.testing.assert_array_equal(made[f"places of {name}"], wanted, f"{kind}, {name}, seed {SEED}")
                np.testing.assert_array_equal(made[name], np.take_along_axis(x, wanted, axis))


def test_none_and_rows_without_elements() -> None:
    """The first 0 elements are none, as for ONNX Runtime; TVM's topk takes 0 for all."""
    for shape, first in (((3, 40), 0), ((0, 40), 5), ((3, 0), 0)):
        model = _model(shape, 1, first)
        session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        data = {dtype: np.zeros(shape, dtype) for dtype in DTYPES}
        made = fusion.compile(model, cache=False).run(data)
        for found, wanted in zip(made.values(), session.run(None, data), strict=True):
            assert found.shape == wanted.shape
            assert found.dtype == wanted.dtype


def test_as_many_as_there_are_rows() -> None:
    """How many are wanted follows from a size: a form for all sizes, made where it is 2 and 3, wants 100 in a call."""
    model = parser.parse_model("""
        <ir_version: 8, opset_import: ["": 18]>
        g (float[b, n] x) => (float[b, n] y, int64[b, n] i) { k = Shape <end = 1> (x)  y, i = TopK <axis = 0> (x, k) }
    """)
    module = fusion.compile(model, threads=2, cache=False, wait=True)
    for shape in ((3, 17), (7, 2), (16, 7), (17, 1), (100, 7), (1, 5)):
        x = _data(shape, "float32", np.random.default_rng(SEED), "special")
        places = _expected(x, 0, shape[0], 1)
        made = module.run({"x": x})
        np.testing.assert_array_equal(made["i"], places)
        np.testing.assert_array_equal(made["y"], np.take_along_axis(x, places, 0))
    assert len(module.specializations) == 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nan_with_the_sign_of_negative_numbers_is_above_all(dtype: str) -> None:
    """CPUs make it of 0 / 0; in float64 it was below all."""
    x = np.array([[1, 3, -np.nan, 2, np.inf]], dtype)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [helper.make_node("TopK", ["x", "k"], ["values", "places"])], "g",
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info("values", kind, (1, 3)), helper.make_tensor_value_info("places", 7, (1, 3))],
        [numpy_helper.from_array(np.array([3]), "k")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    values, places = fusion.compile(model, strict=True)(x)
    np.testing.assert_array_equal(values, np.array([[np.nan, np.inf, 3]], dtype))
    np.testing.assert_array_equal(places, [[2, 4, 1]])
