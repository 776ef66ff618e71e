"""Dilated convolutions leave out taps that lie outside of the image for a whole tile, and no others."""

from __future__ import annotations

import numpy as np
from onnx import helper

from backends.cpu.kernels.shared.window import Window
from tests.frontends.against_onnxruntime import check, model_of


def test_dilated_convolutions_of_small_images_are_right() -> None:
    random = np.random.default_rng(8)
    x = random.standard_normal((2, 32, 13, 15), np.float32)
    cases = [
        {"dilations": [4, 6], "pads": [4, 6, 4, 6]},
        {"dilations": [12, 20], "pads": [12, 20, 12, 20]},
        {"dilations": [5, 3], "pads": [9, 1, 2, 7], "strides": [2, 2]},
        {"dilations": [6, 1], "pads": [16, 1, 20, 1]},
        {"dilations": [3, 4], "pads": [2, 3, 3, 2], "group": 2},
    ]
    weights = {f"w{i}": random.standard_normal((32, 32 // case.get("group", 1), 3, 3), np.float32) / 17
               for i, case in enumerate(cases)}  # fmt: skip
    nodes = [helper.make_node("Conv", ["x", f"w{i}"], [f"y{i}"], **case) for i, case in enumerate(cases)]
    check(model_of(18, nodes, {"x": x}, **weights), {"x": x})


def test_taps_inside_are_those_that_any_pixel_sees() -> None:
    for kernel, stride, before, apart in [(3, 1, 24, 24), (3, 2, 5, 3), (5, 1, 9, 4), (1, 3, 2, 2), (3, 1, 30, 2)]:
        window = Window((kernel, 1), (stride, 1), (before, 0, before, 0), (apart, 1))
        extent = 13
        for first in range(0, (extent + 2 * before - (kernel - 1) * apart - 1) // stride + 1, 3):
            last = min(first + 2, (extent + 2 * before - (kernel - 1) * apart - 1) // stride)
            begin, many = (int(each) for each in window.taps_inside(0, extent, first, last))
            seen = {
                tap for tap in range(kernel) for pixel in range(first, last + 1)
                if 0 <= pixel * stride - before + tap * apart < extent
            }  # fmt: skip
            assert seen <= set(range(begin, begin + many)) <= set(range(kernel))
            assert stride > 1 or first == last or seen == set(range(begin, begin + many))
