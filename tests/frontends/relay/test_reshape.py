"""Shapes, orders of axes and broadcasts against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from fusion.declined import Declined
from fusion.frontends.relay.ops.reshape import new_shape
from tests.frontends.relay.operators import Case, Known, check, refused

_RANDOM = np.random.default_rng(13)


def _x(*shape: int) -> np.ndarray:
    return _RANDOM.standard_normal(shape).astype("float32")


# The examples of Relay's documentation, and others.
_SHAPES = [
    ((2, 3, 4), (4, 0, 2), (4, 3, 2)),
    ((2, 3, 4), (2, 0, 0), (2, 3, 4)),
    ((2, 3, 4), (6, 1, -1), (6, 1, 4)),
    ((2, 3, 4), (3, -1, 8), (3, 1, 8)),
    ((2, 3, 4), (-1,), (24,)),
    ((2, 3, 4), (-2,), (2, 3, 4)),
    ((2, 3, 4), (2, -2), (2, 3, 4)),
    ((2, 3, 4), (-2, 1, 1), (2, 3, 4, 1, 1)),
    ((2, 3, 4), (-3, 4), (6, 4)),
    ((2, 3, 4, 5), (-3, -3), (6, 20)),
    ((2, 3, 4), (0, -3), (2, 12)),
    ((2, 3, 4), (-3, -2), (6, 4)),
    ((2, 3, 4), (-4, 1, 2, -2), (1, 2, 3, 4)),
    ((2, 3, 4), (2, -4, -1, 3, -2), (2, 1, 3, 4)),
    ((2, 8, 4), (0, -4, 2, -1, -1), (2, 2, 4, 4)),
    ((1,), (), ()),
    ((), (1, 1), (1, 1)),
]


@pytest.mark.parametrize(("source", "codes", "target"), _SHAPES)
def test_codes_of_reshape(source: tuple[int, ...], codes: tuple[int, ...], target: tuple[int, ...]) -> None:
    assert new_shape(source, codes) == target


@pytest.mark.parametrize("codes", [(5, -1), (-1, -1), (0, 0, 0, 0), (-3, -3), (-4, -1, -1, -2), (-4, 2), (7,), (-5, 3)])
def test_codes_that_do_not_fit(codes: tuple[int, ...]) -> None:
    with pytest.raises(Declined):
        new_shape((2, 3, 4), codes)


def test_reshapes() -> None:
    x = _x(2, 3, 4)
    check([
        Case("reshape", [x], x.reshape(6, 4), {"newshape": (-3, 0)}),
        Case("reshape", [x], x.reshape(24), {"newshape": -1}),
        Case("reshape", [x], x, {"newshape": (0, 0, -1), "allowzero": 0}),
        Case("contrib_reverse_reshape", [_t(10, 5, 4)], _t(10, 5, 4).reshape(50, 4), {"newshape": (-1, 0)}),
        Case("contrib_reverse_reshape", [x], x.reshape(2, 12), {"newshape": (0, -3)}),
        Case("dyn.reshape", [x, Known(np.array([3, -1], "int64"))], x.reshape(3, 8)),
        Case("reshape_like", [x, _x(4, 6)], x.reshape(4, 6)),
        Case("reshape_like", [_t(30, 7), _x(15, 2, 4)], _t(30, 7).reshape(15, 2, 7),
             {"lhs_begin": 0, "lhs_end": 1, "rhs_begin": 0, "rhs_end": 2}),
        Case("reshape_like", [_t(30, 7), _x(2, 15, 4)], _t(30, 7).reshape(2, 15, 7),
             {"lhs_begin": -2, "lhs_end": -1, "rhs_begin": 0, "rhs_end": 2}),
        Case("squeeze", [x.reshape(1, 2, 3, 1, 4)], x),
        Case("squeeze", [x.reshape(1, 2, 3, 1, 4)], x.reshape(1, 2, 3, 4), {"axis": (-2,)}),
        Case("dyn.squeeze", [x.reshape(1, 6, 4), Known(np.array([0]))], x.reshape(6, 4)),
        Case("expand_dims", [x], x.reshape(2, 1, 1, 3, 4), {"axis": 1, "num_newaxis": 2}),
        Case("expand_dims", [x], x.reshape(2, 3, 4, 1), {"axis": -1}),
        Case("dyn.expand_dims", [x, Known(np.array(0))], x[None]),
    ])


def _t(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype="float32").reshape(shape)


def test_orders_of_axes() -> None:
    x, image = _x(2, 3, 4), _x(2, 8, 3, 5)
    blocked = image.reshape(2, 2, 4, 3, 5).transpose(0, 1, 3, 4, 2)
    weight = _x(8, 4, 3, 3)
    check([
        Case("transpose", [x], x.T.copy()),
        Case("transpose", [x], x.transpose(1, 2, 0).copy(), {"axes": (1, -1, 0)}),
        Case("transpose", [x], x, {"axes": (0, 1, 2)}),
        Case("layout_transform", [image], image.transpose(0, 2, 3, 1).copy(),
             {"src_layout": "NCHW", "dst_layout": "NHWC"}),
        Case("layout_transform", [image], blocked.copy(), {"src_layout": "NCHW", "dst_layout": "NCHW4c"}),
        Case("layout_transform", [blocked.copy()], image, {"src_layout": "NCHW4c", "dst_layout": "NCHW"}),
        Case("layout_transform", [blocked.copy()],
             image.reshape(2, 4, 2, 3, 5).transpose(0, 3, 4, 1, 2).copy(),
             {"src_layout": "NCHW4c", "dst_layout": "NHWC2c"}),
        Case("layout_transform", [weight],
             weight.reshape(2, 4, 2, 2, 3, 3).transpose(0, 2, 4, 5, 3, 1).copy(),
             {"src_layout": "OIHW", "dst_layout": "OIHW2i4o"}),
        Case("layout_transform", [weight], weight, {"src_layout": "OIHW", "dst_layout": "OIHW"}),
    ])


def test_broadcasts() -> None:
    x, wide = _x(3, 1), _x(2, 3, 4)
    check([
        Case("broadcast_to", [x], np.broadcast_to(x, (2, 3, 4)).copy(), {"shape": (2, 3, 4)}),
        Case("dyn.broadcast_to", [x, Known(np.array([3, 5]))], np.broadcast_to(x, (3, 5)).copy()),
        Case("broadcast_to_like", [x, wide], np.broadcast_to(x, (2, 3, 4)).copy()),
        Case("broadcast_to", [wide], wide, {"shape": (2, 3, 4)}),
        Case("collapse_sum_like", [wide, x], wide.sum(0).sum(1, keepdims=True)),
        Case("collapse_sum_to", [wide, Known(np.array([4]))], wide.sum((0, 1)), {"shape": (4,)}),
        Case("collapse_sum_to", [wide, Known(np.array([2, 1, 4]))], wide.sum(1, keepdims=True)),
    ])


def test_wrong_operands_are_refused() -> None:
    x = _x(2, 3, 4)
    assert "not constant" in refused("dyn.reshape", x, np.array([6, 4]))
    refused("reshape_like", x, _x(5, 5))
    refused("squeeze", x, axis=(1,))
    refused("expand_dims", x, axis=5)
    refused("transpose", x, axes=(0, 1))
    refused("transpose", x, axes=(0, 1, 1))
    refused("layout_transform", x, src_layout="NCHW", dst_layout="NHWC")
    refused("layout_transform", _x(2, 6, 3, 3), src_layout="NCHW", dst_layout="NCHW4c")
    refused("layout_transform", _x(2, 6, 3, 3), src_layout="NCHW", dst_layout="NCDW")
    refused("layout_transform", _x(2, 6, 3, 3), src_layout="NCHW", dst_layout="NC4HW")
    refused("layout_transform", _x(2, 6, 3, 3), src_layout="NCHW", dst_layout="NCHW0c")
    refused("layout_transform", _x(2, 6, 3, 4), src_layout="NHW4c", dst_layout="NHW4c")
    refused("layout_transform", _x(2, 6, 3, 3), src_layout="NCCW", dst_layout="NCCW")
    refused("broadcast_to", x, shape=(3, 3, 4))
    refused("broadcast_to", x, shape=(3, 4))
    refused("collapse_sum_like", x, _x(2, 2, 4))
