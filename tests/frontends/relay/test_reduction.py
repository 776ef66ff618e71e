"""Reductions and scans against numpy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.frontends.relay.operators import Case, check, refused

_RANDOM = np.random.default_rng(12)
_X = _RANDOM.standard_normal((2, 3, 4)).astype("float32")
_I = _RANDOM.integers(-9, 9, (2, 3, 4)).astype("int32")
_B = _RANDOM.integers(0, 4, (2, 3, 4)) > 0

# What the text gives, and the axes that this means.
_AXES = [
    ({}, (0, 1, 2)),
    ({"axis": ()}, (0, 1, 2)),
    ({"axis": None, "keepdims": True}, (0, 1, 2)),
    ({"axis": (1,)}, (1,)),
    ({"axis": 1, "keepdims": True}, (1,)),
    ({"axis": (-1, 0)}, (0, 2)),
    ({"axis": (1,), "exclude": True}, (0, 2)),
    ({"axis": (0, 1), "exclude": True, "keepdims": 1}, (2,)),
]


@pytest.mark.parametrize(("attributes", "axes"), _AXES, ids=str)
def test_reductions(attributes: dict, axes: tuple[int, ...]) -> None:
    keep = bool(attributes.get("keepdims", False))
    functions = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min}
    mean = _X.mean(axes, keepdims=True)
    count = _X.size // mean.size
    total = _I.sum(axes, keepdims=keep)
    toward_zero = (np.sign(total) * (np.abs(total) // count)).astype("int32")
    half = _X.astype("float16")
    check([
        *(Case(name, [_X], np.asarray(f(_X, axis=axes, keepdims=keep)), attributes) for name, f in functions.items()),
        *(Case(name, [_I], np.asarray(f(_I, axis=axes, keepdims=keep), "int32"), attributes)
          for name, f in functions.items()),
        Case("sum", [half], np.asarray(half.astype("float32").sum(axes, keepdims=keep)).astype("float16"), attributes,
             tolerance=1e-3),
        Case("all", [_B], np.asarray(np.all(_B, axes, keepdims=keep)), attributes),
        Case("any", [_B], np.asarray(np.any(_B, axes, keepdims=keep)), attributes),
        Case("mean", [_X], np.asarray(_X.mean(axes, keepdims=keep)), attributes),
        Case("mean", [_I], np.asarray(toward_zero), attributes),
        Case("variance", [_X, mean], np.asarray(_X.var(axes, keepdims=keep)), attributes),
        Case("variance", [_X, mean], np.asarray(_X.var(axes, keepdims=keep, ddof=1)), {**attributes, "unbiased": True}),
        *_positions(attributes, axes, keep),
    ])


def _positions(attributes: dict, axes: tuple[int, ...], keep: bool) -> list[Case]:
    """argmax and argmin of many equal elements: the first or the last of them."""
    x = (_I % 3).astype("float32")
    kept = [axis for axis in range(3) if axis not in axes]
    rows = x.transpose([*kept, *axes]).reshape([x.shape[axis] for axis in kept] + [-1])
    shape = [1 if axis in axes else x.shape[axis] for axis in range(3)] if keep else rows.shape[:-1]
    last = rows.shape[-1] - 1
    cases = []
    for name, function in (("argmax", np.argmax), ("argmin", np.argmin)):
        first = np.asarray(function(rows, -1), "int32").reshape(shape)
        other = np.asarray(last - function(rows[..., ::-1], -1), "int32").reshape(shape)
        cases += [Case(name, [x], first, attributes), Case(name, [x], other, {**attributes, "select_last_index": True})]
    return cases


def test_nothing_to_reduce() -> None:
    all_axes = {"axis": (0, 1, 2), "exclude": True}
    scalar = np.array(2.5, "float32")
    check([
        Case("sum", [_X], _X, all_axes),
        Case("mean", [_X], _X, all_axes),
        Case("any", [_B], _B, all_axes),
        Case("argmax", [_X], np.zeros(_X.shape, "int32"), all_axes),
        Case("max", [scalar], scalar),
        Case("mean", [scalar], scalar),
        Case("argmin", [scalar], np.array(0, "int32")),
    ])


@pytest.mark.parametrize("axis", [None, 0, -1])
@pytest.mark.parametrize("exclusive", [False, True])
def test_scans(axis: int | None, exclusive: bool) -> None:
    def scanned(function: Callable[..., np.ndarray], x: np.ndarray, start: int) -> np.ndarray:
        x = x.reshape(-1) if axis is None else x
        along = 0 if axis is None else axis
        if exclusive:
            first = np.full_like(np.take(x, [0], along), start)
            x = np.concatenate([first, np.delete(x, -1, along)], along)
        return function(x, along, dtype=x.dtype)

    given = {"axis": axis, "exclusive": exclusive}
    check([
        Case("cumsum", [_X], scanned(np.cumsum, _X, 0), given),
        Case("cumsum", [_I], scanned(np.cumsum, _I, 0), given),
        Case("cumsum", [_B], scanned(np.cumsum, _B.astype("int64"), 0), {**given, "dtype": "int64"}),
        Case("cumprod", [_X], scanned(np.cumprod, _X, 1), given),
        Case("cumprod", [_X], scanned(np.cumprod, _X.astype("float64"), 1), {**given, "dtype": "float64"}),
    ])


def test_wrong_operands_are_refused() -> None:
    assert "axis 3" in refused("sum", _X, axis=(3,))
    assert "exclude" in refused("sum", _X, exclude=True)
    refused("all", _X)
    refused("variance", _I, _I)
    refused("cumsum", _X, axis=3)
    refused("argmax", _X, axis="last")
