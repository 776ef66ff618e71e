from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.frontends.relay.operators import Case, check, refused

RNG = np.random.default_rng(1)


def random(*shape: int, dtype: str = "float32") -> np.ndarray:
    if "int" in dtype:
        return RNG.integers(0 if dtype[0] == "u" else -9, 9, shape).astype(dtype)
    return RNG.standard_normal(shape).astype(dtype)


def reference(function: Callable[..., torch.Tensor], x: np.ndarray, w: np.ndarray, **options: object) -> np.ndarray:
    """Return torch's result in float64, as float32; layouts are its own."""
    return function(torch.from_numpy(x).double(), torch.from_numpy(w).double(), **options).numpy().astype(np.float32)


def move(x: np.ndarray, source: str, target: str) -> np.ndarray:
    return np.ascontiguousarray(np.transpose(x, [source.index(axis) for axis in target]))


def test_one_to_three_axes() -> None:
    cases = []
    for rank, function in ((1, F.conv1d), (2, F.conv2d), (3, F.conv3d)):
        x, w = random(2, 4, *[9, 8, 7][:rank]), random(6, 2, *[3, 2, 3][:rank])
        strides, dilation, pads = (2, 1, 1)[:rank], (1, 2, 1)[:rank], (1, 0, 2)[:rank]
        wanted = reference(function, x, w, stride=strides, dilation=dilation, padding=pads, groups=2)
        attributes = {"strides": strides, "dilation": dilation, "groups": 2, "kernel_size": w.shape[2:], "channels": 6}
        for given in (pads, pads * 2):
            cases.append(Case(f"nn.conv{rank}d", [x, w], wanted, {**attributes, "padding": given}))
    check(cases)


def test_padding_of_two_sides_differs() -> None:
    x, w = random(1, 3, 6, 5), random(4, 3, 3, 3)
    wanted = reference(F.conv2d, np.pad(x, ((0, 0), (0, 0), (1, 0), (2, 1))), w)
    check([Case("nn.conv2d", [x, w], wanted, {"padding": (1, 2, 0, 1)})])


@pytest.mark.parametrize(("layout", "kernel"), [("NHWC", "HWIO"), ("NHWC", "OHWI"), ("NCHW", "HWIO"), ("HWNC", "OIHW")])
def test_layouts(layout: str, kernel: str) -> None:
    x, w = random(2, 4, 6, 5), random(8, 4, 3, 2)
    wanted = reference(F.conv2d, x, w, padding=(1, 0))
    attributes = {"padding": (1, 0), "data_layout": layout, "kernel_layout": kernel}
    operands = [move(x, "NCHW", layout), move(w, "OIHW", kernel)]
    check(
        [
            Case("nn.conv2d", operands, move(wanted, "NCHW", layout), attributes),
            Case("nn.conv2d", operands, wanted, {**attributes, "out_layout": "NCHW"}),
        ]
    )


def test_depthwise_with_several_results_of_each_channel() -> None:
    """The weight is [channels, results of each], in NHWC written HWOI."""
    x, w = random(1, 3, 7, 7), random(3, 2, 3, 3)
    wanted = reference(F.conv2d, x, w.reshape(6, 1, 3, 3), groups=3)
    check(
        [
            Case("nn.conv2d", [x, w], wanted, {"groups": 3, "channels": 6, "kernel_size": (3, 3)}),
            Case(
                "nn.conv2d",
                [move(x, "NCHW", "NHWC"), move(w, "OIHW", "HWOI")],
                move(wanted, "NCHW", "NHWC"),
                {"groups": 3, "channels": 6, "data_layout": "NHWC", "kernel_layout": "HWOI"},
            ),
        ]
    )


def test_blocked_layouts() -> None:
    x, w = random(1, 8, 6, 6), random(8, 8, 3, 3)
    blocked = x.reshape(1, 2, 4, 6, 6).transpose(0, 1, 3, 4, 2)
    kernel = w.reshape(4, 2, 2, 4, 3, 3).transpose(0, 2, 4, 5, 3, 1)
    wanted = reference(F.conv2d, x, w).reshape(1, 4, 2, 4, 4).transpose(0, 1, 3, 4, 2)
    layouts = {"data_layout": "NCHW4c", "kernel_layout": "OIHW4i2o", "out_layout": "NCHW2c"}
    depth = random(8, 1, 3, 3)
    apart = reference(F.conv2d, x, depth, groups=8).reshape(1, 2, 4, 4, 4).transpose(0, 1, 3, 4, 2)
    packed = depth.reshape(2, 4, 1, 1, 3, 3).transpose(0, 2, 4, 5, 3, 1)
    check(
        [
            Case("nn.contrib_conv2d_NCHWc", [blocked, kernel], wanted, layouts),
            Case(
                "nn.contrib_depthwise_conv2d_NCHWc",
                [blocked, packed],
                apart,
                {"data_layout": "NCHW4c", "kernel_layout": "OIHW1i4o", "groups": 8, "channels": 8},
            ),
        ]
    )


def test_dtypes_of_results() -> None:
    x, w = random(1, 3, 5, 5, dtype="uint8"), random(2, 3, 3, 3, dtype="int8")
    exact = reference(F.conv2d, x, w)
    halves = random(1, 3, 5, 5, dtype="float16"), random(2, 3, 3, 3, dtype="float16")
    check(
        [
            Case("nn.conv2d", [x, w], exact.astype("int32"), {"out_dtype": "int32"}),
            Case("nn.conv2d", list(halves), reference(F.conv2d, *halves), {"out_dtype": "float32"}),
            Case("nn.conv2d", list(halves), reference(F.conv2d, *halves).astype("float16"), tolerance=1e-3),
        ]
    )


def test_transposed() -> None:
    cases = []
    for rank, function in ((1, F.conv_transpose1d), (2, F.conv_transpose2d), (3, F.conv_transpose3d)):
        x, w = random(2, 4, *[5, 4, 3][:rank]), random(4, 3, *[3, 4, 3][:rank])
        strides, pads, more = (2, 3, 2)[:rank], (1, 1, 0)[:rank], (1, 0, 1)[:rank]
        wanted = reference(function, x, w, stride=strides, padding=pads, output_padding=more)
        attributes = {"strides": strides, "padding": pads, "output_padding": more}
        cases.append(Case(f"nn.conv{rank}d_transpose", [x, w], wanted, attributes))
    x, w = random(1, 4, 5, 5), random(4, 2, 3, 3)
    grouped = reference(F.conv_transpose2d, x, w, stride=2, groups=2)
    cases.append(Case("nn.conv2d_transpose", [x, w], grouped, {"strides": (2, 2), "groups": 2}))
    operands = [move(x, "NCHW", "NHWC"), move(w, "IOHW", "HWIO")]
    plain = move(reference(F.conv_transpose2d, x, w), "NCHW", "NHWC")
    cases.append(Case("nn.conv2d_transpose", operands, plain, {"data_layout": "NHWC", "kernel_layout": "HWIO"}))
    check(cases)


def test_deformable_by_whole_pixels() -> None:
    """Offsets of one row down for every point of the window read the image one row further down."""
    x, w = random(1, 3, 6, 6), random(4, 3, 3, 3)
    offset = np.zeros((1, 18, 4, 4), np.float32)
    offset[:, ::2] = 1
    wanted = reference(F.conv2d, np.pad(x, ((0, 0), (0, 0), (0, 1), (0, 0)))[:, :, 1:], w)
    check([Case("nn.deformable_conv2d", [x, offset, w], wanted, {"kernel_size": (3, 3), "channels": 4})])


def test_what_is_refused() -> None:
    x, w = random(1, 3, 4, 4), random(2, 3, 5, 5)
    assert "5x5 does not fit the padded input of 4x4" in refused("nn.conv2d", x, w)
    assert "'NCQW'" not in refused("nn.conv2d", x, w, data_layout="NCHh")
    assert "no layout" in refused("nn.conv2d", x, w, data_layout="NC4HW")
    assert "channels" in refused("nn.conv2d", x, random(2, 2, 3, 3))
    assert "padding has 3 numbers" in refused("nn.conv2d", x, w, padding=(1, 1, 1))
