"""Elementwise operators against numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.frontends.relay.operators import Case, Known, check, refused

_RANDOM = np.random.default_rng(11)


def _normal(*shape: int, dtype: str = "float32") -> np.ndarray:
    return _RANDOM.standard_normal(shape).astype(dtype)


def _whole(*shape: int, low: int = -50, high: int = 50, dtype: str = "int32") -> np.ndarray:
    return _RANDOM.integers(low, high, shape).astype(dtype)


def _erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf, otypes=[x.dtype])(x)


_UNIT = _RANDOM.uniform(-0.99, 0.99, (3, 7)).astype("float32")
_POSITIVE = _RANDOM.uniform(0.01, 9, (3, 7)).astype("float32")
_MIDDLES = np.array([-2.5, -1.5, -0.5, -0.49999997, 0.0, 0.49999997, 0.5, 1.5, 2.5, 8388609.0, -3.2], "float32")
_SPECIAL = np.array([1.0, np.nan, np.inf, -np.inf, 0.0], "float32")


def _away(x: np.ndarray) -> np.ndarray:
    return np.trunc(x) + np.where(np.abs(x - np.trunc(x)) >= 0.5, np.sign(x), 0).astype(x.dtype)


def test_functions_of_floats() -> None:
    x, unit, positive = 3 * _normal(4, 5), _UNIT, _POSITIVE
    numpy = {
        "acos": (np.arccos, unit), "acosh": (np.arccosh, 1 + positive), "asin": (np.arcsin, unit),
        "asinh": (np.arcsinh, x), "atan": (np.arctan, x), "atanh": (np.arctanh, unit), "cos": (np.cos, x),
        "cosh": (np.cosh, x), "erf": (_erf, x), "exp": (np.exp, x), "fast_erf": (_erf, x), "fast_exp": (np.exp, x),
        "fast_tanh": (np.tanh, x), "log": (np.log, positive), "log2": (np.log2, positive),
        "log10": (np.log10, positive), "rsqrt": (lambda a: 1 / np.sqrt(a), positive),
        "sigmoid": (lambda a: 1 / (1 + np.exp(-a)), x), "sin": (np.sin, x), "sinh": (np.sinh, x),
        "sqrt": (np.sqrt, positive), "tan": (np.tan, unit), "tanh": (np.tanh, x), "ceil": (np.ceil, x),
        "floor": (np.floor, x), "trunc": (np.trunc, x), "round": (_away, x), "abs": (np.abs, x), "sign": (np.sign, x),
        "negative": (np.negative, x), "copy": (np.copy, x), "zeros_like": (np.zeros_like, x),
        "ones_like": (np.ones_like, x),
    }  # fmt: skip
    check([Case(name, [array], function(array)) for name, (function, array) in numpy.items()])


def test_functions_of_other_dtypes() -> None:
    whole, small, truth = _whole(9), _whole(9, low=0, dtype="uint8"), _whole(9, low=0, high=2, dtype="bool")
    same = [Case(name, [whole], whole) for name in ("ceil", "floor", "round", "trunc")]
    check([
        *same,
        Case("round", [_MIDDLES], _away(_MIDDLES)),
        Case("log2", [2.0 ** np.arange(-8, 9).astype("float32")], np.arange(-8, 9).astype("float32")),
        Case("sinh", [np.array([1e-6, -1e-3, 0.4999, 0.5001], "float32")],
             np.sinh(np.array([1e-6, -1e-3, 0.4999, 0.5001], "float32")), tolerance=1e-7),
        Case("exp", [_UNIT.astype("float64")], np.exp(_UNIT.astype("float64")), tolerance=1e-12),
        Case("exp", [_UNIT.astype("float16")], np.exp(_UNIT.astype("float16")), tolerance=2e-3),
        Case("abs", [whole], np.abs(whole)),
        Case("abs", [small], small),
        Case("sign", [whole], np.sign(whole)),
        Case("sign", [small], np.sign(small)),
        Case("negative", [whole], -whole),
        Case("isnan", [_SPECIAL], np.isnan(_SPECIAL)),
        Case("isinf", [_SPECIAL], np.isinf(_SPECIAL)),
        Case("isfinite", [_SPECIAL], np.isfinite(_SPECIAL)),
        Case("isfinite", [whole], np.ones(9, bool)),
        Case("isnan", [whole], np.zeros(9, bool)),
        Case("logical_not", [truth], ~truth),
        Case("bitwise_not", [truth], ~truth),
        Case("bitwise_not", [whole], ~whole),
        Case("zeros_like", [truth], np.zeros_like(truth)),
    ])


@pytest.mark.parametrize("shapes", [((2, 3, 4), (2, 3, 4)), ((2, 1, 4), (3, 1)), ((), (5,)), ((4,), (2, 1, 1))])
def test_arithmetic_broadcasts(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a, b = (_normal(*shape) + np.float32(0.01) for shape in shapes)
    i, j = (_whole(*shape, low=1 + low, high=50) for shape, low in zip(shapes, (-50, 0), strict=True))
    k = j * np.where(_whole(*j.shape) > 0, 1, -1).astype("int32")
    toward_zero = (np.sign(i) * np.sign(k) * (np.abs(i) // np.abs(k))).astype("int32")
    plain = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "maximum": np.maximum,
             "minimum": np.minimum, "equal": np.equal, "not_equal": np.not_equal, "less": np.less,
             "less_equal": np.less_equal, "greater": np.greater, "greater_equal": np.greater_equal}
    check([
        *(Case(name, [a, b], function(a, b)) for name, function in plain.items()),
        *(Case(name, [i, j], function(i, j)) for name, function in plain.items()),
        Case("divide", [a, b], a / b),
        Case("divide", [i, k], toward_zero),
        Case("trunc_divide", [i, k], toward_zero),
        Case("trunc_divide", [a, b], np.trunc(a / b)),
        Case("floor_divide", [i, k], i // k),
        Case("floor_divide", [a, b], np.floor(a / b)),
        Case("mod", [i, k], i - toward_zero * k),
        Case("trunc_mod", [i, k], i - toward_zero * k),
        Case("mod", [a, b], np.fmod(a, b)),
        Case("floor_mod", [i, k], i % k),
        Case("floor_mod", [a, b], a - np.floor(a / b) * b),
        Case("power", [np.abs(a), b], np.abs(a) ** b),
        Case("power", [i, j % 5], i ** (j % 5)),
        Case("bitwise_and", [i, k], i & k),
        Case("bitwise_or", [i, k], i | k),
        Case("bitwise_xor", [i, k], i ^ k),
        Case("left_shift", [j, j % 8], j << (j % 8)),
        Case("right_shift", [k, j % 8] if k.shape == j.shape else [j, j % 8], k >> (j % 8)),
    ])


def test_logic() -> None:
    a, b = _whole(2, 3, low=0, high=2, dtype="bool"), _whole(3, low=0, high=2, dtype="bool")
    x, y = _normal(2, 1), _normal(1, 3)
    check([
        Case("logical_and", [a, b], a & b),
        Case("logical_or", [a, b], a | b),
        Case("logical_xor", [a, b], a ^ b),
        Case("bitwise_and", [a, b], a & b),
        Case("bitwise_xor", [a, b], a ^ b),
        Case("where", [a, x, y], np.where(a, x, y)),
        Case("where", [a.astype("float32"), x, y], np.where(a, x, y)),
        Case("where", [np.array(True), x, y], np.broadcast_to(x, (2, 3)).copy()),
    ])


def test_clip() -> None:
    x, i, u = 10 * _normal(20), _whole(20), _whole(20, low=0, high=200, dtype="uint8")
    check([
        Case("clip", [x], np.clip(x, -1.5, 6.0), {"a_min": -1.5, "a_max": 6.0}),
        Case("clip", [x], np.clip(x, 0, None), {"a_min": 0.0, "a_max": float("inf")}),
        Case("clip", [x], np.full_like(x, 3.0), {"a_min": 3.0, "a_max": 1.0}),
        Case("clip", [i], np.clip(i, -7, 8), {"a_min": -7.0, "a_max": 8.9}),
        Case("clip", [u], np.clip(u, 0, 100), {"a_min": -5.0, "a_max": 100.0}),
        Case("clip", [i.astype("int8")], i.astype("int8"), {"a_min": -128.0, "a_max": 255.0}),
    ])


def test_casts() -> None:
    x, i = 10 * _normal(12), _whole(12)
    check([
        Case("cast", [x], x.astype("int32"), {"dtype": "int32"}),
        Case("cast", [x], x.astype("float16"), {"dtype": "float16"}),
        Case("cast", [i], i != 0, {"dtype": "bool"}),
        Case("cast", [x], x != 0, {"dtype": "bool"}),
        Case("cast", [i > 0], (i > 0).astype("float32"), {"dtype": "float32"}),
        Case("cast", [i], i, {"dtype": "int32"}),
        Case("cast_like", [i, x], i.astype("float32")),
        Case("reinterpret", [x], x.view("int32"), {"dtype": "int32"}),
        Case("reinterpret", [i], i.view("float32"), {"dtype": "float32"}),
        Case("shape_of", [x.reshape(3, 4)], np.array([3, 4], "int64"), {"dtype": "int64"}),
        Case("shape_of", [x], np.array([12], "int32")),
        Case("ndarray_size", [x.reshape(3, 4)], np.array(12, "int32")),
    ])


def _scaled(x: np.ndarray, multiplier: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The definition in Python's integers."""
    exact = (x.astype(object) * 2 ** left.astype(object)) * multiplier.astype(object)
    total = 31 + right.astype(object)
    return ((exact + 2 ** (total - 1)) // 2**total).astype("int32")


def test_fixed_point() -> None:
    x = _whole(4, 6, low=-(2**20), high=2**20)
    multiplier = _whole(6, low=2**30, high=2**31 - 1)
    left, right = _whole(6, low=0, high=4), _whole(6, low=0, high=9)
    none = np.zeros(6, "int32")
    one = {shift: _scaled(x, np.array(1395864371), np.array(max(shift, 0)), np.array(max(-shift, 0)))
           for shift in (-3, 0, 2)}
    check([
        *(Case("fixed_point_multiply", [x], want, {"multiplier": 1395864371, "shift": shift})
          for shift, want in one.items()),
        Case("fixed_point_multiply_per_axis", [x, multiplier, left, right], _scaled(x, multiplier, left, right),
             {"is_lshift_required": True, "is_rshift_required": True, "axes": (1,)}),
        Case("fixed_point_multiply_per_axis", [x, multiplier, left, right], _scaled(x, multiplier, none, right),
             {"is_lshift_required": False, "is_rshift_required": True, "axes": (1,)}),
    ])


def test_annotations_compute_nothing() -> None:
    x = _normal(3)
    names = ("annotation.stop_fusion", "annotation.checkpoint", "annotation.compiler_begin", "on_device", "device_copy")
    check([Case(name, [x], x) for name in names])


def test_wrong_operands_are_refused() -> None:
    x, i = _normal(3), _whole(3)
    assert "int32" in refused("exp", i)
    assert "float32 and int32" in refused("add", x, i)
    assert "float32 and int32" in refused("where", i > 0, x, i)
    refused("logical_and", i, i)
    refused("logical_not", i)
    refused("bitwise_and", x, x)
    refused("left_shift", x, x)
    refused("reinterpret", x, dtype="float64")
    refused("fixed_point_multiply", x, multiplier=1, shift=0)
    refused("cast", x, dtype="custom[posit]32")
    refused("add", x)
    refused("add", (x, x), Known(x))
