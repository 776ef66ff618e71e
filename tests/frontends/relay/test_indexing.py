"""Reads and writes at positions that are data, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontends.relay.operators import Case, Known, check, refused

_RANDOM = np.random.default_rng(15)
_X = _RANDOM.standard_normal((3, 4, 5)).astype("float32")


def _whole(high: int, *shape: int, low: int = 0, dtype: str = "int64") -> np.ndarray:
    return _RANDOM.integers(low, high, shape).astype(dtype)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("axis", [None, 0, -1, 1])
def test_take(axis: int | None, known: bool) -> None:
    size = _X.size if axis is None else _X.shape[axis]
    inside, outside = _whole(size, 2, 3, dtype="int32"), _whole(2 * size, 2, 3, low=-size)
    narrow = _whole(100, 4, low=-100, dtype="int8")
    given = Known if known else lambda array: array
    check([
        Case("take", [_X, given(outside)], np.take(_X, outside, axis, mode="clip"), {"axis": axis}),
        Case("take", [_X, given(outside)], np.take(_X, outside, axis, mode="wrap"), {"axis": axis, "mode": "wrap"}),
        Case("take", [_X, given(narrow)], np.take(_X, narrow, axis, mode="clip"), {"axis": axis, "mode": "clip"}),
        Case("take", [_X, given(inside)], np.take(_X, inside, axis), {"axis": axis, "mode": "fast"}),
        Case("take", [_X, given(inside[0, 0])], np.take(_X, inside[0, 0], axis), {"axis": axis}),
    ])


@pytest.mark.parametrize(("axis", "batch"), [(1, 1), (2, 1), (2, 2), (-1, -1)])
def test_take_with_common_axes(axis: int, batch: int) -> None:
    indices = _whole(2 * _X.shape[axis], *(3, 4)[: abs(batch)], 2, low=-3)
    if batch < 0:
        indices = indices.reshape(3, 2)
    common = batch if batch >= 0 else batch + indices.ndim
    want = np.stack([
        np.take(_X[place], indices[place], axis % 3 - common, mode="clip")
        for place in np.ndindex(*_X.shape[:common])
    ])
    want = want.reshape(*_X.shape[:common], *want.shape[1:])
    check([Case("take", [_X, indices], want, {"axis": axis, "batch_dims": batch})])


def test_gathers() -> None:
    along = [(_whole(_X.shape[axis], *shape, dtype="int32"), axis)
             for axis, shape in ((0, (6, 4, 5)), (1, (3, 9, 5)), (-1, (3, 4, 1)), (0, (2, 3, 4)))]
    pairs, triples = _whole(3, 2, 6), _whole(3, 3, 2, 2, dtype="int32")
    by_batch = _whole(4, 1, 3, 2)
    check([
        *(Case("gather", [_X, indices], _gathered(indices, axis), {"axis": axis}) for indices, axis in along),
        Case("gather_nd", [_X, pairs], _X[tuple(pairs)]),
        Case("gather_nd", [_X, triples], _X[tuple(triples)]),
        Case("gather_nd", [_X, by_batch], np.stack([_X[at][by_batch[0, at]] for at in range(3)]), {"batch_dims": 1}),
        Case("adv_index", [(_X, pairs[0], pairs[1])], _X[pairs[0], pairs[1]]),
        Case("adv_index", [(_X, pairs[:1].T.copy(), pairs[1])], _X[pairs[:1].T, pairs[1]]),
        Case("adv_index", [(_X, triples[0])], _X[triples[0]]),
    ])


def _gathered(indices: np.ndarray, axis: int) -> np.ndarray:
    places = list(np.indices(indices.shape))
    places[axis] = indices
    return _X[tuple(places)]


_FUNCTIONS = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scatter_elements(axis: int) -> None:
    shape = list(_X.shape)
    shape[axis] = 2
    once = np.argsort(_RANDOM.random(_X.shape), axis).take([0, 1], axis).astype("int64")
    often = _whole(_X.shape[axis], *shape, dtype="int32")
    updates = _RANDOM.standard_normal(shape).astype("float32")
    cases = [Case("scatter_elements", [_X, once, updates], _scattered(None, once, updates, axis), {"axis": axis})]
    for name, function in _FUNCTIONS.items():
        want = _scattered(function, often, updates, axis)
        cases.append(Case("scatter_elements", [_X, often, updates], want, {"axis": axis, "reduction": name}))
    cases.append(Case("scatter", [_X, once, updates], _scattered(None, once, updates, axis), {"axis": axis}))
    cases.append(Case("scatter_add", [_X, often, updates], _scattered(np.add, often, updates, axis), {"axis": axis}))
    check(cases)


def _scattered(function: np.ufunc | None, indices: np.ndarray, updates: np.ndarray, axis: int) -> np.ndarray:
    places = list(np.indices(indices.shape))
    places[axis] = indices
    want = _X.copy()
    if function is None:
        want[tuple(places)] = updates
    else:
        function.at(want, tuple(places), updates)
    return want


def test_scatter_nd() -> None:
    once = np.array([[0, 2, 1], [3, 0, 1]], "int64")
    often = _whole(3, 2, 7, dtype="int32")
    updates, more = (_RANDOM.standard_normal((count, 5)).astype("float32") for count in (3, 7))
    want = _X.copy()
    want[tuple(once)] = updates
    cases = [Case("scatter_nd", [_X, once, updates], want, {"mode": "update"})]
    for name, function in _FUNCTIONS.items():
        want = _X.copy()
        function.at(want, tuple(often), more)
        cases.append(Case("scatter_nd", [_X, often, more], want, {"mode": name}))
    check(cases)


def test_sequence_mask() -> None:
    by_time, by_batch = np.array([1, 0, 3, 2], "int32"), np.array([5, 2, 1], "float32")
    behind = np.arange(3)[:, None, None] >= by_time[None, :, None]
    other = np.arange(4)[None, :, None] >= by_batch[:, None, None]
    check([
        Case("sequence_mask", [_X, by_time], np.where(behind, np.float32(0), _X)),
        Case("sequence_mask", [_X, by_batch], np.where(other, np.float32(-7.5), _X), {"mask_value": -7.5, "axis": 1}),
    ])


def test_sparse_to_dense() -> None:
    values, none = np.array([3, 1, 2], "float32"), np.array(0.5, "float32")
    vector = np.full(6, 0.5, "float32")
    vector[[4, 0, 1]] = values
    matrix = np.zeros((3, 4), "float32")
    matrix[[0, 2, 1], [3, 0, 1]] = values
    single = np.full(4, 0.5, "float32")
    single[2] = 3
    check([
        Case("sparse_to_dense", [np.array([4, 0, 1], "int32"), values, none], vector, {"output_shape": (6,)}),
        Case("sparse_to_dense", [np.array([[0, 3], [2, 0], [1, 1]]), values], matrix, {"output_shape": (3, 4)}),
        Case("sparse_to_dense", [np.array(2), np.array(3, "float32"), none], single, {"output_shape": (4,)}),
        Case("dyn.sparse_to_dense", [np.array([4, 0, 1], "int32"), values, none, Known(np.array([6]))], vector),
    ])


def test_argwhere_of_a_constant() -> None:
    given = np.array([[0, 1], [2, 0]], "float32")
    check([Case("argwhere", [Known(given)], np.array([[0, 1], [1, 0]], "int32"))])
    assert "not constant" in refused("argwhere", given)


def test_wrong_operands_are_refused() -> None:
    i = np.array([0, 1])
    refused("take", _X, i, axis=3)
    refused("take", _X, i, mode="nan")
    refused("take", _X, i, axis=1, batch_dims=1)
    refused("gather", _X, i, axis=0)
    refused("gather", _X, np.zeros((4, 5, 5), "int64"), axis=0)
    refused("gather_nd", _X, np.zeros((4, 2), "int64"))
    refused("scatter_elements", _X, np.zeros((1, 4, 5), "int64"), _X)
    refused("scatter_elements", _X, np.zeros(_X.shape, "int64"), _X, reduction="xor")
    refused("scatter_nd", _X, np.zeros((2, 3), "int64"), _X)
    refused("adv_index", (_X, i, i, i, i))
    refused("sequence_mask", _X, i)
    refused("sequence_mask", _X, i, axis=2)
    refused("sparse_to_dense", i, np.zeros(2, "float32"), output_shape=(3, 3))
