"""Operators that join, cut, repeat or make tensors, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontends.relay.operators import Case, Known, check, refused

_RANDOM = np.random.default_rng(14)


def _x(*shape: int) -> np.ndarray:
    return _RANDOM.standard_normal(shape).astype("float32")


def _known(*values: float, dtype: str = "int64") -> Known:
    return Known(np.array(values, dtype))


def _number(value: float, dtype: str = "float32") -> np.ndarray:
    return np.array(value, dtype)


def test_joins_and_splits() -> None:
    a, b, c = _x(2, 3, 4), _x(2, 1, 4), _x(2, 3, 4)
    empty = np.zeros((2, 0, 4), "float32")
    check([
        Case("concatenate", [(a, b)], np.concatenate([a, b], 1), {"axis": 1}),
        Case("concatenate", [(a, c)], np.concatenate([a, c])),
        Case("concatenate", [(a, c, a)], np.concatenate([a, c, a], -1), {"axis": -1}),
        Case("concatenate", [(a, empty)], a, {"axis": 1}),
        Case("concatenate", [(a,)], a, {"axis": 1}),
        Case("stack", [(a, c)], np.stack([a, c])),
        Case("stack", [(a, c)], np.stack([a, c], -1), {"axis": -1}),
        Case("stack", [(_number(1), _number(2))], np.array([1, 2], "float32")),
        Case("split", [a], np.split(a, 3, 1), {"indices_or_sections": 3, "axis": 1}),
        Case("split", [a], np.split(a, [1, 3], -1), {"indices_or_sections": (1, 3), "axis": -1}),
        Case("split", [a], [a], {"indices_or_sections": 1, "axis": 1}),
        Case("split", [a], np.split(a, [0, 2, 2], 2), {"indices_or_sections": (0, 2, 2), "axis": 2}),
    ])


def test_repeats() -> None:
    x = _x(2, 3, 4)
    lengths = np.array([3, 0, 2, 1], "int32")
    turned = x.copy()
    for at, length in enumerate(lengths):
        turned[:, :length, at] = x[:, :length, at][:, ::-1]
    check([
        Case("tile", [x], np.tile(x, (2, 1, 3)), {"reps": (2, 1, 3)}),
        Case("tile", [x], np.tile(x, 2), {"reps": (2,)}),
        Case("tile", [x], np.tile(x, (2, 1, 1, 1)), {"reps": (2, 1, 1, 1)}),
        Case("dyn.tile", [x, _known(1, 2, 1)], np.tile(x, (1, 2, 1))),
        Case("repeat", [x], x.repeat(3, 1), {"repeats": 3, "axis": -2}),
        Case("repeat", [x], x.repeat(2), {"repeats": 2}),
        Case("reverse", [x], x[:, ::-1].copy(), {"axis": 1}),
        Case("reverse_sequence", [x, lengths], turned, {"seq_axis": 1, "batch_axis": 2}),
    ])


# begin, end, strides, further attributes, and what numpy calls it.
_SLICES = [
    ((0, 1), (1, 3), (1, 1), {}, np.s_[0:1, 1:3]),
    ((0, 1), (1, 3), (), {}, np.s_[0:1, 1:3]),
    ((0,), (2,), (1,), {}, np.s_[0:2]),
    ((-3, 0, -2), (-1, 100, 100), (1, 1, 1), {}, np.s_[-3:-1, :, -2:]),
    ((3, 3), (0, -7), (-1, -2), {}, np.s_[3:0:-1, 3::-2]),
    ((-1, 0), (-100, 5), (-3, 3), {}, np.s_[::-3, ::3]),
    ((5, -1), (1, 1), (-2, -1), {"axes": (2, 0)}, np.s_[-1:1:-1, :, 5:1:-2]),
    ((1, 2), (3, -1), (2, 2), {"slice_mode": "size"}, np.s_[1:4, 2:]),
    ((-2, 0), (2, 1), (1, 1), {"slice_mode": "size"}, np.s_[-2:, 0:1]),
    ((0, 2), (4, 2), (1, 1), {}, np.s_[:, 2:2]),
    ((2,), (1,), (1,), {}, np.s_[2:1]),
    ((0, 0, 0), (4, 5, 6), (1, 1, 1), {}, np.s_[:]),
]


def test_slices() -> None:
    x = _x(4, 5, 6)
    cases = [Case("strided_slice", [x], x[place].copy(), {"begin": begin, "end": end, "strides": step, **more})
             for begin, end, step, more, place in _SLICES]
    like = [((2, 3, 6), None), ((2, 3), None), ((9, 3, 2), (1, -1))]
    check([
        *cases,
        Case("dyn.strided_slice", [x, _known(1, 4), _known(3, 0), _known(1, -2)], x[1:3, 4:0:-2].copy()),
        *(Case("slice_like", [x, _x(*shape)], _front(x, shape, axes), {"axes": axes}) for shape, axes in like),
    ])


def _front(x: np.ndarray, shape: tuple[int, ...], axes: tuple[int, ...] | None) -> np.ndarray:
    chosen = range(len(shape)) if axes is None else [axis % x.ndim for axis in axes]
    return x[tuple(slice(shape[at]) if at in chosen else slice(None) for at in range(x.ndim))].copy()


@pytest.mark.parametrize(("begin", "end", "strides", "place"), [
    ((0, 1, 2), (2, 3, 6), None, np.s_[0:2, 1:3, 2:6]),
    ((3, 0), (0, 5), (-2, 3), np.s_[3:0:-2, 0:5:3]),
    ((-3, -2), (-1, 5), (1, 1), np.s_[-3:-1, -2:]),
])
def test_setting_a_slice(
    begin: tuple[int, ...], end: tuple[int, ...], strides: tuple[int, ...] | None, place: tuple[slice, ...]
) -> None:
    x = _x(4, 5, 6)
    new = _x(*x[place].shape)
    want = x.copy()
    want[place] = new
    more = [] if strides is None else [_known(*strides)]
    check([Case("strided_set", [x, new, _known(*begin), _known(*end), *more], want)])


def test_made_tensors() -> None:
    x, three = _x(2, 3), _number(3)
    rows, columns, one = _x(3), _x(4), _number(7)
    check([
        Case("full", [three], np.full((2, 3), 3, "float32"), {"shape": (2, 3)}),
        Case("full", [three], np.full((2, 3), 3, "int32"), {"shape": (2, 3), "dtype": "int32"}),
        Case("dyn.full", [three, _known(2, 2)], np.full((2, 2), 3, "float32"), {"dtype": "float32"}),
        Case("full_like", [x, _number(5)], np.full((2, 3), 5, "float32")),
        Case("zeros", [], np.zeros((2, 3), "int8"), {"shape": (2, 3), "dtype": "int8"}),
        Case("ones", [], np.ones((2, 3), "float32"), {"shape": (2, 3), "dtype": "float32"}),
        Case("dyn.zeros", [_known(3, 1)], np.zeros((3, 1), "float32"), {"dtype": "float32"}),
        Case("dyn.ones", [_known(3, 1)], np.ones((3, 1), "int64"), {"dtype": "int64"}),
        Case("arange", [Known(_number(1.5)), Known(_number(4)), Known(_number(0.5))],
             np.arange(1.5, 4, 0.5, "float32"), {"dtype": "float32"}),
        Case("arange", [Known(_number(9, "int32")), Known(_number(0, "int32")), Known(_number(-4, "int32"))],
             np.array([9, 5, 1], "int32"), {"dtype": "int32"}),
        Case("meshgrid", [(rows, columns)], np.meshgrid(rows, columns, indexing="ij"), {"indexing": "ij"}),
        Case("meshgrid", [(rows, columns)], np.meshgrid(rows, columns, indexing="xy"), {"indexing": "xy"}),
        Case("meshgrid", [(rows, columns, one)], np.meshgrid(rows, columns, one, indexing="ij")),
        Case("meshgrid", [(rows,)], [rows], {"indexing": "xy"}),
        Case("invert_permutation", [np.array([3, 4, 0, 2, 1], "int32")], np.array([2, 4, 3, 0, 1], "int32")),
        Case("unravel_index", [np.array([22, 41, 37], "int64"), Known(np.array([7, 6]))],
             np.stack(np.unravel_index([22, 41, 37], (7, 6))).astype("int64")),
        Case("unravel_index", [_number(1621, "int32"), Known(np.array([6, 7, 8, 9]))],
             np.array([3, 1, 4, 1], "int32")),
    ])


def test_one_hot() -> None:
    i = np.array([[0, 3, -1], [2, 9, 1]], "int32")
    hot = (i[..., None] == np.arange(4)).astype("float32") * 5 - 2
    values = [_number(3), _number(-2)]
    check([
        Case("one_hot", [i, *values], hot, {"depth": 4, "axis": -1, "dtype": "float32"}),
        Case("one_hot", [i, *values], np.moveaxis(hot, -1, 0).copy(), {"depth": 4, "axis": 0, "dtype": "float32"}),
        Case("one_hot", [i, *values], hot.astype("int32"), {"depth": 4, "axis": 2, "dtype": "int32"}),
        Case("dyn.one_hot", [i, *values, Known(_number(4, "int32"))], np.moveaxis(hot, -1, 1).copy(),
             {"axis": 1, "dtype": "float32"}),
    ])


def test_triangles_and_diagonals() -> None:
    x = _x(2, 4, 5)
    one, band = _x(2, 4), _x(2, 3, 5)
    check([
        *(Case("trilu", [x, _number(k, "int64")], np.triu(x, k), {"upper": True}) for k in (-2, 0, 3)),
        *(Case("trilu", [x, _number(k, "int32")], np.tril(x, k), {"upper": False}) for k in (-2, 0, 3)),
        Case("matrix_set_diag", [x, one], _with_diagonals(x, one[:, None], 1, 1, True, True), {"k1": 1, "k2": 1}),
        *(Case("matrix_set_diag", [x, band], _with_diagonals(x, band, -1, 1, above, below),
               {"k1": -1, "k2": 1, "super_diag_right_align": above, "sub_diag_right_align": below})
          for above in (False, True) for below in (False, True)),
    ])


def _with_diagonals(x: np.ndarray, rows: np.ndarray, low: int, high: int, above: bool, below: bool) -> np.ndarray:
    """TensorFlow's definition of matrix_set_diag, one diagonal at a time."""
    want = x.copy()
    for k in range(low, high + 1):
        row, column = np.arange(max(0, -k), min(4, 5 - k)), np.arange(max(0, k), min(5, 4 + k))
        diagonal = rows[:, high - k]
        right = (above if k >= 0 else below) and low != high
        want[:, row, column] = diagonal[:, -len(row) :] if right else diagonal[:, : len(row)]
    return want


def test_sliding_windows() -> None:
    x = _x(2, 3, 7, 8)
    view = np.lib.stride_tricks.sliding_window_view
    check([
        Case("sliding_window", [x], view(x, (3, 4), (2, 3))[:, :, ::2, ::3].copy(),
             {"axis": 2, "window_shape": (3, 4), "strides": (2, 3)}),
        Case("sliding_window", [x], view(x, (3, 4, 8), (1, 2, 3))[:, ::2, ::3, ::4].copy(),
             {"axis": 1, "window_shape": (3, 4, 8), "strides": (2, 3, 4)}),
        Case("sliding_window", [x], view(x, (8,), (3,)).copy(), {"axis": -1, "window_shape": (8,), "strides": (1,)}),
    ])


def test_wrong_operands_are_refused() -> None:
    x = _x(2, 3, 4)
    assert "tuple" in refused("concatenate", x)
    refused("split", x, indices_or_sections=2, axis=1)
    refused("split", x, indices_or_sections=(3, 1), axis=2)
    refused("strided_slice", x, begin=(0,), end=(1,), strides=(0,))
    refused("strided_slice", x, begin=(0, 0), end=(1, 1), strides=(1, 1), axes=(0,))
    refused("dyn.strided_slice", x, np.array([0]), np.array([1]), np.array([1]))
    refused("slice_like", x, _x(3, 3, 3))
    refused("strided_set", x, _x(2, 2, 2), _known(0), _known(1))
    refused("full", _x(2), shape=(2,))
    refused("arange", _number(0), _number(3), _number(1))
    refused("reverse", x, axis=3)
    refused("reverse_sequence", x, np.array([1, 2]), seq_axis=0, batch_axis=1)
    refused("matrix_set_diag", x, _x(2, 2, 3), k1=-1, k2=1)
    refused("sliding_window", x, axis=1, window_shape=(4, 1), strides=(1, 1))
    refused("sliding_window", x, axis=1, window_shape=(1,), strides=(1,))
    refused("unravel_index", np.array([1]), np.array([3, 4]))
