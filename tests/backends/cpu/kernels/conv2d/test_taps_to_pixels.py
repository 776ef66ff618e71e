"""Convolutions into few channels, as a product for all taps and their sum, against float64 PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from backends.cpu.kernels.conv2d.taps_to_pixels import pays_as_taps
from backends.cpu.kernels.shared.window import Window
from tests.backends.cpu.kernels.anchored import TARGETS, convolve, normal, run
from tests.backends.cpu.kernels.convolved import check_convolution

# channels in, out, kernel, strides, padding, dilation, image
CASES = {
    "signal": (32, 1, (7, 1), (1, 1), (3, 0, 3, 0), (1, 1), (2, 61, 1)),
    "image": (24, 1, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), (1, 13, 19)),
    "no border": (16, 1, (5, 5), (1, 1), (0, 0, 0, 0), (1, 1), (2, 9, 12)),
    "uneven border": (16, 1, (3, 4), (1, 1), (0, 3, 2, 1), (1, 1), (1, 8, 21)),
    "dilated": (20, 1, (3, 3), (1, 1), (4, 2, 4, 2), (4, 2), (1, 11, 10)),
    "strides": (64, 1, (7, 7), (2, 1), (3, 3, 3, 3), (1, 1), (1, 15, 14)),
    "two channels": (100, 2, (5, 5), (1, 1), (2, 2, 2, 2), (1, 1), (1, 10, 17)),
    "three channels": (300, 3, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), (1, 9, 8)),
    "a window larger than its image": (48, 1, (7, 7), (1, 1), (3, 3, 3, 3), (1, 1), (1, 3, 2)),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES)
def test_few_channels_are_a_product_and_a_sum(case: str, target: str) -> None:
    depth, made, kernel, strides, padding, dilation, size = CASES[case]
    ran = check_convolution(
        size, (1, depth, made), kernel, strides, padding, dilation, ("relu",), target, many=2, seed=3
    )
    assert set(ran) == {"matmul", "stitch_stages"}


@pytest.mark.parametrize(
    ("depth", "made", "kernel", "strides"),
    [(4, 1, (3, 1), (1, 1)), (64, 8, (3, 3), (1, 1)), (16, 3, (3, 3), (1, 1)), (64, 1, (3, 3), (3, 3))],
    ids=["few taps and inputs", "whole vectors", "a sum longer than what it saves", "strides"],
)
def test_others_are_not(depth: int, made: int, kernel: tuple[int, int], strides: tuple[int, int]) -> None:
    window = Window(kernel, strides, (0, 0, 0, 0), (1, 1))
    assert not pays_as_taps((made, depth, *kernel), window, 8)


@pytest.mark.parametrize("value", [np.inf, np.nan, 3e38])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_is_not_finite_stays_where_its_windows_are(value: float) -> None:
    data, weight = normal((1, 12, 14, 24), 1), normal((1, 24, 3, 3), 2)
    data[0, 5, 6, 3] = value
    expected = convolve(data, weight, (1, 1), (1, 1, 1, 1), (1, 1), 1)

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return relax.op.nn.conv2d(x, relax.const(weight), padding=1, data_layout="NHWC")

    (got,) = run(build, [data], TARGETS[0], 1).outputs
    near = np.zeros(got.shape, bool)
    near[0, 4:7, 5:8] = True
    np.testing.assert_allclose(got[~near], expected[~near], rtol=1e-5, atol=1e-5)
    assert np.array_equal(np.isnan(got[near]), np.isnan(expected[near].astype("float32")))
