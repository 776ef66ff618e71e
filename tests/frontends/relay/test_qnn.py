"""Against the definitions in exact or double arithmetic; every result is an integer and must be the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F

from tests.frontends.relay.operators import Case, Known, check, refused
from tests.frontends.relay.test_convolution import move, random

RNG = np.random.default_rng(2)


def scale(*values: float) -> Known:
    return Known(np.array(values if len(values) > 1 else values[0], np.float32))


def zero(*values: int) -> Known:
    return Known(np.array(values if len(values) > 1 else values[0], np.int32))


def saturated(values: np.ndarray, dtype: str) -> np.ndarray:
    return np.clip(values, np.iinfo(dtype).min, np.iinfo(dtype).max).astype(dtype)


def half_away(values: np.ndarray) -> np.ndarray:
    whole = np.trunc(values)
    return whole + np.where(np.abs(values - whole) >= 0.5, np.sign(values), 0)


def test_quantize_rounds_halves_away_from_zero() -> None:
    x = np.array([[-2.5, -1.5, -0.5, -0.4, 0.5], [1.5, 2.5, 1e4, -1e4, 0.49999997]], np.float32)
    by_row = half_away(x / np.array([[1.0], [0.5]])) + np.array([[3], [-2]])
    check(
        [
            Case("qnn.quantize", [x, scale(1.0), zero(0)], saturated(half_away(x), "int8"), {"out_dtype": "int8"}),
            Case("qnn.quantize", [x, scale(1.0), zero(4)], saturated(half_away(x) + 4, "uint8"),
                 {"out_dtype": "uint8"}),
            Case("qnn.quantize", [x, scale(1.0, 0.5), zero(3, -2)], saturated(by_row, "int8"), {"axis": 0}),
        ]
    )


def test_dequantize() -> None:
    q = RNG.integers(0, 255, (3, 4)).astype("uint8")
    wanted = ((q.astype("int32") - 7) * np.float32(0.1)).astype("float32")
    factors = np.array([0.1, 0.2, 0.3, 0.4], "float32")
    columns = ((q.astype("int32") - np.array([1, 2, 3, 4])) * factors).astype("float32")
    check(
        [
            Case("qnn.dequantize", [q, scale(0.1), zero(7)], wanted),
            Case("qnn.dequantize", [q, scale(0.1, 0.2, 0.3, 0.4), zero(1, 2, 3, 4)], columns),
            Case("qnn.dequantize", [q, scale(0.1), zero(7)], wanted.astype("float16"), {"out_dtype": "float16"}),
        ]
    )


def test_requantize_rounds_as_asked() -> None:
    x = np.array([-7, -6, -5, -3, -1, 0, 1, 3, 5, 6, 7, 100000, -100000], "int32")
    up, nearest = np.floor(x / 2 + 0.5), half_away(x / 2)
    operands = [x, scale(0.5), zero(0), scale(1.0), zero(0)]
    moved = [*operands[:4], zero(1)]
    nearest_attributes = {"out_dtype": "int8", "rounding": "TONEAREST"}
    cases = [
        Case("qnn.requantize", moved, saturated(up + 1, "int8"), {"out_dtype": "int8"}),
        # Floats are rounded behind the zero point, fixed point before it.
        Case("qnn.requantize", moved, saturated(half_away(x / 2 + 1), "int8"), nearest_attributes),
        Case("qnn.requantize", moved, saturated(nearest + 1, "int8"), {**nearest_attributes, "compute_dtype": "int64"}),
    ]
    for dtype in ("int64", "float32", "float64", "None"):
        for mode, wanted in (("UPWARD", up), ("TONEAREST", nearest), ("None", up)):
            attributes = {"out_dtype": "int8", "rounding": mode, "compute_dtype": dtype}
            cases.append(Case("qnn.requantize", operands, saturated(wanted, "int8"), attributes))
    check(cases)
    assert "DOWN" in refused("qnn.requantize", *operands, rounding="DOWN")


def test_requantize_by_channels() -> None:
    x = RNG.integers(-9000, 9000, (2, 3, 5)).astype("int32")
    ratios = np.array([0.0123, 0.037, 1.7]).astype("float32").reshape(1, 3, 1)
    shifted = x - np.array([5, 0, -3]).reshape(1, 3, 1)
    wanted = saturated(np.floor(shifted * ratios.astype("float64") / np.float32(0.7) + 0.5) - 4, "int8")
    operands = [x, Known(ratios.reshape(-1)), zero(5, 0, -3), scale(0.7), zero(-4)]
    check([Case("qnn.requantize", operands, wanted, {"axis": 1, "compute_dtype": dtype})
           for dtype in ("int64", "float64")])


def test_scales_that_the_run_knows() -> None:
    x = RNG.integers(-900, 900, (4,)).astype("int32")
    given, wanted_scale = np.float32(0.25), np.float32(0.5)
    wanted = saturated(np.floor(x * 0.5 + 0.5), "int16")
    operands = [x, given, zero(0), wanted_scale, zero(0)]
    check([Case("qnn.requantize", operands, wanted, {"out_dtype": "int16"})])
    assert "fixed point" in refused("qnn.requantize", *operands, compute_dtype="int64")


def test_binary() -> None:
    a, b = (RNG.integers(0, 255, (3, 4)).astype("uint8") for _ in range(2))
    ones = [scale(0.5), zero(10), scale(0.25), zero(20)]
    real_a, real_b = (a.astype(float) - 10) * 0.5, (b.astype(float) - 20) * 0.25
    onto_a, onto_b = np.floor(real_a / 0.5 + 30 + 0.5), np.floor(real_b / 0.5 + 30 + 0.5)
    product = np.floor((a.astype(float) - 10) * (b.astype(float) - 20) * 0.125 / 8 + 30 + 0.5)
    same = [scale(0.5), zero(30), scale(0.5), zero(30), scale(0.5), zero(30)]
    check(
        [
            Case("qnn.add", [a, b, *ones, scale(0.5), zero(30)], saturated(onto_a + onto_b - 30, "uint8")),
            Case("qnn.subtract", [a, b, *ones, scale(0.5), zero(30)], saturated(onto_a - onto_b + 30, "uint8")),
            Case("qnn.mul", [a, b, *ones, scale(8.0), zero(30)], saturated(product, "uint8")),
            Case("qnn.add", [a, b, *same], saturated(a.astype(int) + b - 30, "uint8")),
        ]
    )


def test_concatenate() -> None:
    a, b = RNG.integers(-128, 127, (2, 3)).astype("int8"), RNG.integers(-128, 127, (2, 2)).astype("int8")
    moved = saturated(np.floor((b.astype(float) - 4) * 0.5 + 1 + 0.5), "int8")
    scales, zeros = (scale(1.0), scale(0.5)), (zero(1), zero(4))
    wanted = np.concatenate([a, moved], 1)
    check([Case("qnn.concatenate", [(a, b), scales, zeros, scale(1.0), zero(1)], wanted, {"axis": 1})])


def test_products() -> None:
    x, w = RNG.integers(0, 255, (3, 6)).astype("uint8"), RNG.integers(-128, 127, (8, 6)).astype("int8")
    wide, weight = x.astype("int32") - 9, w.astype("int32") - np.arange(8, dtype="int32").reshape(8, 1)
    tail = [zero(9), zero(*range(8)), scale(0.1), scale(*[0.1] * 8)]
    tiled = w.reshape(2, 4, 6).transpose(0, 2, 1)
    a, b = random(2, 3, 4, dtype="int8"), random(2, 5, 4, dtype="int8")
    many = (a.astype("int32") - 2) @ (b.astype("int32") + 1).transpose(0, 2, 1)
    wanted = wide @ weight.T
    check(
        [
            Case("qnn.dense", [x, w, *tail], wanted, {"out_dtype": "int32", "units": 8}),
            Case("qnn.contrib_dense_pack", [x, tiled, *tail], wanted, {"out_dtype": "int32", "weight_layout": "NC4n"}),
            Case("qnn.batch_matmul", [a, b, zero(2), zero(-1), scale(0.1), scale(0.1)], many, {"out_dtype": "int32"}),
        ]
    )


def exact(function: Callable[..., torch.Tensor], x: np.ndarray, w: np.ndarray, **options: object) -> np.ndarray:
    return function(torch.from_numpy(x).double(), torch.from_numpy(w).double(), **options).numpy().astype("int32")


def test_convolutions_pad_with_the_zero_point() -> None:
    x, w = RNG.integers(0, 255, (1, 4, 5, 5)).astype("uint8"), RNG.integers(-128, 127, (6, 4, 3, 3)).astype("int8")
    wide = x.astype("int32") - 100
    weight = w.astype("int32") - np.arange(6).reshape(6, 1, 1, 1)
    tail = [zero(100), zero(*range(6)), scale(0.1), scale(*[0.1] * 6)]
    attributes = {"out_dtype": "int32", "padding": (1, 1), "channels": 6, "kernel_size": (3, 3)}
    last = {**attributes, "data_layout": "NHWC", "kernel_layout": "HWIO"}
    wanted = exact(F.conv2d, wide, weight, padding=1)
    depth = RNG.integers(-128, 127, (4, 2, 3, 3)).astype("int8")
    apart = exact(F.conv2d, wide, depth.astype("int32").reshape(8, 1, 3, 3) - 1, groups=4)
    turned = RNG.integers(-128, 127, (4, 3, 3, 3)).astype("int8")
    check(
        [
            Case("qnn.conv2d", [x, w, *tail], wanted, attributes),
            Case("qnn.conv2d", [move(x, "NCHW", "NHWC"), move(w, "OIHW", "HWIO"), *tail],
                 move(wanted, "NCHW", "NHWC"), last),
            Case("qnn.conv2d", [x, depth, zero(100), zero(1), scale(0.1), scale(0.1)], apart,
                 {"out_dtype": "int32", "groups": 4, "channels": 8, "kernel_size": (3, 3)}),
            Case("qnn.conv2d_transpose", [x, turned, zero(100), zero(3), scale(0.1), scale(0.1)],
                 exact(F.conv_transpose2d, wide, turned.astype("int32") - 3, stride=2),
                 {"out_dtype": "int32", "strides": (2, 2)}),
        ]
    )


def test_functions_of_the_real_numbers() -> None:
    q = np.arange(0, 255, 5).astype("uint8")
    real = (q.astype("float64") - 20) * np.float32(0.05)
    functions = {
        "tanh": np.tanh(real),
        "exp": np.exp(real),
        "sigmoid": 1 / (1 + np.exp(-real)),
        "abs": np.abs(real),
        "hardswish": real * np.clip(real + 3, 0, 6) / 6,
        "erf": torch.erf(torch.from_numpy(real)).numpy(),
    }
    cases = []
    for name, wanted in functions.items():
        near = np.abs((wanted / np.float32(0.037)) % 1 - 0.5) < 1e-4
        assert not near.any(), f"{name}: an odd case depends on the last bit"
        result = saturated(half_away(wanted / np.float32(0.037)) + 60, "uint8")
        cases.append(Case(f"qnn.{name}", [q, scale(0.05), zero(20), scale(0.037), zero(60)], result))
    positive = np.arange(1, 120, 3).astype("int8")
    real = positive * np.float32(0.1).astype("float64")
    for name, wanted in {"sqrt": np.sqrt(real), "rsqrt": 1 / np.sqrt(real), "log": np.log(real)}.items():
        result = saturated(half_away(wanted / np.float32(0.031)), "int8")
        cases.append(Case(f"qnn.{name}", [positive, scale(0.1), zero(0), scale(0.031), zero(0)], result))
    check(cases)


def test_leaky_relu() -> None:
    q = np.arange(0, 255).astype("uint8")
    moved = np.floor((q.astype(float) - 100) * 0.5 / 0.25 + 90 + 0.5)
    lower = np.floor(moved * 0.125 + 0.5) + np.floor(90 * 0.875 + 0.5)
    wanted = saturated(np.where(q < 100, lower, moved), "uint8")
    check([Case("qnn.leaky_relu", [q, scale(0.5), zero(100), scale(0.25), zero(90)], wanted, {"alpha": 0.125})])


def test_softmax_is_near_the_exact_one() -> None:
    q = np.random.default_rng(0).integers(-128, 127, (4, 10)).astype("int8")
    real = F.softmax(torch.from_numpy(q).double() * 0.05, -1).numpy()
    by = [q, scale(0.05), zero(0), scale(1 / 256), zero(-128)]
    got = integer_softmax(q, 0.05)
    check([Case("qnn.softmax", by, saturated(np.floor(got * 2 - 128 + 0.5), "int8"))])
    assert np.abs(got / 128 - real).max() < 0.02


def integer_softmax(q: np.ndarray, of: float) -> np.ndarray:
    """Algorithm 1 of I-ViT in numpy's integers."""
    unit = round(1 / of)
    x = q.astype(np.int64) - q.max(-1, keepdims=True)
    powers = x + (x >> 1) - (x >> 4)
    whole = np.minimum(-powers // unit, 20)
    exponentials = (((powers + whole * unit) >> 1) + unit) << (whole.max(-1, keepdims=True) - whole)
    return ((2**30 // exponentials.sum(-1, keepdims=True)) * exponentials) >> 23


def test_average_pool() -> None:
    x = RNG.integers(0, 255, (1, 2, 4, 4)).astype("uint8")
    moved = np.floor((x.astype(float) - 10) * 0.5 / 0.25 + 5 + 0.5)
    sums = moved.reshape(1, 2, 2, 2, 2, 2).sum((3, 5))
    operands = [x, scale(0.5), zero(10), scale(0.25), zero(5)]
    wanted = saturated(np.trunc(sums / 4), "uint8")
    check([Case("qnn.avg_pool2d", operands, wanted, {"pool_size": (2, 2), "strides": (2, 2)})])


def test_simulated() -> None:
    x = np.array([[-2.5, 0.6], [1.5, 1e4]], np.float32)
    wanted = np.clip(half_away(x / 0.5) + 3, -128, 127).astype("float32")
    whole = np.array([[1.0, -2.0], [3.0, 4.0]], np.float32)
    check(
        [
            Case("qnn.simulated_quantize", [x, zero(1), scale(0.5), zero(3)], wanted),
            Case("qnn.simulated_quantize", [x, zero(0), scale(0.5), zero(3)], x),
            Case("qnn.simulated_dequantize", [whole, zero(2), scale(0.5), zero(3)], (whole - 3) * np.float32(0.5)),
        ]
    )
