"""Sorts and searches against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontends.relay.operators import Case, Known, check, refused

_RANDOM = np.random.default_rng(16)
_X = _RANDOM.standard_normal((3, 6, 5)).astype("float32")
_TIES = _RANDOM.integers(0, 3, (3, 6, 5)).astype("int32")


def _order(x: np.ndarray, axis: int, ascending: bool) -> np.ndarray:
    """Where each element comes from: of equal ones the first comes first."""
    return np.argsort(x if ascending else -x, axis, kind="stable")


@pytest.mark.parametrize("ascending", [True, False])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_sorts(axis: int, ascending: bool) -> None:
    given = {"axis": axis, "is_ascend": ascending}
    order, of_ties = _order(_X, axis, ascending), _order(_TIES, axis, ascending)
    top = order.take(range(2), axis)
    values = np.take_along_axis(_X, order, axis)
    check([
        Case("sort", [_X], values, given),
        Case("sort", [_TIES], np.take_along_axis(_TIES, of_ties, axis), given),
        Case("argsort", [_X], order.astype("int32"), {**given, "dtype": "int32"}),
        Case("argsort", [_TIES], of_ties.astype("int64"), {**given, "dtype": "int64"}),
        Case("argsort", [_X], order.astype("float32"), {**given, "dtype": "float32"}),
        Case("topk", [_X], [np.take_along_axis(_X, top, axis), top.astype("int32")], {**given, "k": 2}),
        Case("topk", [_TIES], [np.take_along_axis(_TIES, of_ties, axis), of_ties], {**given, "k": 0, "dtype": "int64"}),
        Case("topk", [_X], np.take_along_axis(_X, top, axis), {**given, "k": 2, "ret_type": "values"}),
        Case("topk", [_X], top.astype("int32"), {**given, "k": 2, "ret_type": "indices", "dtype": "int32"}),
        Case("dyn.topk", [_X, Known(np.array(2, "int64"))], [np.take_along_axis(_X, top, axis), top.astype("int32")],
             given),
    ])


def test_defaults() -> None:
    """Sorts ascend along the last axis; topk gives the largest element."""
    largest = _X.argmax(-1, keepdims=True)
    check([
        Case("sort", [_X], np.sort(_X)),
        Case("argsort", [_X], np.argsort(_X).astype("int32")),
        Case("topk", [_X], [_X.max(-1, keepdims=True), largest.astype("int32")]),
    ])


@pytest.mark.parametrize("right", [True, False])
def test_searchsorted(right: bool) -> None:
    side = "right" if right else "left"
    vector, rows = np.sort(_TIES.reshape(-1)), np.sort(_TIES, -1)
    values = _RANDOM.integers(-1, 4, (3, 6, 7)).astype("int32")
    by_row = np.stack([
        np.stack([np.searchsorted(line, wanted, side) for line, wanted in zip(page, wants, strict=True)])
        for page, wants in zip(rows, values, strict=True)
    ])
    check([
        Case("searchsorted", [vector, values], np.searchsorted(vector, values, side).astype("int32"), {"right": right}),
        Case("searchsorted", [rows, values], by_row.astype("int64"), {"right": right, "dtype": "int64"}),
    ])


def test_wrong_operands_are_refused() -> None:
    refused("sort", _X, axis=3)
    refused("topk", _X, k=6)
    refused("topk", _X, k=1, ret_type="first")
    refused("dyn.topk", _X, np.array(2))
    refused("searchsorted", _X, _X[:2])
