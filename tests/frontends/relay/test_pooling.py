from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from tests.frontends.relay.operators import Case, check, refused
from tests.frontends.relay.test_convolution import move, random

MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVERAGE = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


def test_windows() -> None:
    cases = []
    for rank in (1, 2, 3):
        x = random(2, 3, *[9, 8, 7][:rank])
        tensor = torch.from_numpy(x)
        kernel, strides, pads = (3, 2, 3)[:rank], (2, 2, 1)[:rank], (1, 1, 1)[:rank]
        attributes = {"pool_size": kernel, "strides": strides, "padding": pads}
        greatest = MAX[rank](tensor, kernel, strides, pads).numpy()
        cases.append(Case(f"nn.max_pool{rank}d", [x], greatest, attributes))
        for include in (False, True):
            mean = AVERAGE[rank](tensor, kernel, strides, pads, count_include_pad=include).numpy()
            cases.append(Case(f"nn.avg_pool{rank}d", [x], mean, {**attributes, "count_include_pad": include}))
    check(cases)


def test_layouts_and_rounding_up() -> None:
    x = random(1, 4, 7, 7)
    greatest = F.max_pool2d(torch.from_numpy(x), 2, 2, ceil_mode=True).numpy()
    dilated = F.max_pool2d(torch.from_numpy(x), 2, 1, dilation=2).numpy()
    blocked = x.reshape(1, 2, 2, 7, 7).transpose(0, 1, 3, 4, 2)
    attributes = {"pool_size": (2, 2), "strides": (2, 2), "ceil_mode": True}
    check(
        [
            Case("nn.max_pool2d", [move(x, "NCHW", "NHWC")], move(greatest, "NCHW", "NHWC"),
                 {**attributes, "layout": "NHWC"}),
            Case("nn.max_pool2d", [blocked], greatest.reshape(1, 2, 2, 4, 4).transpose(0, 1, 3, 4, 2),
                 {**attributes, "layout": "NCHW2c"}),
            Case("nn.max_pool2d", [x], dilated, {"pool_size": (2, 2), "dilation": (2, 2)}),
        ]
    )
    assert "does not fit" in refused("nn.max_pool2d", random(1, 1, 2, 2), pool_size=(3, 3))


def test_by_the_size_of_the_result() -> None:
    x, tensor = (array := random(2, 3, 7, 6)), torch.from_numpy(array)
    line, deep = random(1, 2, 9), random(1, 2, 4, 6, 5)
    check(
        [
            Case("nn.global_avg_pool2d", [x], x.mean((2, 3), keepdims=True)),
            Case("nn.global_max_pool2d", [move(x, "NCHW", "NHWC")], x.max((2, 3)).reshape(2, 1, 1, 3),
                 {"layout": "NHWC"}),
            Case("nn.adaptive_avg_pool2d", [x], F.adaptive_avg_pool2d(tensor, (3, 4)).numpy(), {"output_size": (3, 4)}),
            Case("nn.adaptive_max_pool2d", [x], F.adaptive_max_pool2d(tensor, (5, 4)).numpy(), {"output_size": (5, 4)}),
            Case("nn.adaptive_avg_pool2d", [x], F.adaptive_avg_pool2d(tensor, (7, 3)).numpy(), {"output_size": (7, 3)}),
            Case("nn.adaptive_max_pool2d", [x], x.max((2, 3), keepdims=True), {"output_size": (1,)}),
            Case("nn.adaptive_max_pool2d", [x], x),
            Case("nn.adaptive_avg_pool1d", [line], F.adaptive_avg_pool1d(torch.from_numpy(line), 4).numpy(),
                 {"output_size": (4,)}),
            Case("nn.adaptive_max_pool1d", [line], F.adaptive_max_pool1d(torch.from_numpy(line), 3).numpy(),
                 {"output_size": (3,)}),
            Case("nn.adaptive_avg_pool3d", [deep], F.adaptive_avg_pool3d(torch.from_numpy(deep), (2, 4, 5)).numpy(),
                 {"output_size": (2, 4, 5)}),
            Case("nn.adaptive_max_pool3d", [deep], F.adaptive_max_pool3d(torch.from_numpy(deep), (2, 3, 1)).numpy(),
                 {"output_size": (2, 3, 1)}),
        ]
    )


def test_means_of_integers_are_rounded_towards_zero() -> None:
    x = np.array([-3, -4, 5, 6], "int32").reshape(1, 1, 2, 2)
    wanted = np.array([[-3, 5]], "int32").reshape(1, 1, 2, 1)
    odd = np.arange(-7, 8, dtype="int32").reshape(1, 1, 3, 5)
    ends = ((0, 2), (1, 4), (3, 5))
    sums = [[odd[0, 0, row, start:end].sum() / (end - start) for start, end in ends] for row in range(3)]
    check(
        [
            Case("nn.avg_pool2d", [x], wanted, {"pool_size": (1, 2), "strides": (1, 2)}),
            Case("nn.global_avg_pool2d", [x - 1], np.array([[[[0]]]], "int32")),
            Case("nn.adaptive_avg_pool2d", [odd], np.trunc(sums).astype("int32").reshape(1, 1, 3, 3),
                 {"output_size": (3, 3)}),
            Case("nn.adaptive_max_pool2d", [odd], odd[:, :, :, [1, 3, 4]], {"output_size": (3, 3)}),
        ]
    )
