"""Paddings that go into convolutions, and others."""

from __future__ import annotations

import pytest
from tvm import relax
from tvm.relax import op

from fusion.rewrites import Rewrite
from tests.passes.modules import apply, calls, names, normal, unchanged, weight

IMAGE = normal(2, 4, 6, 7)


def test_pads_of_space_with_zeros_go_into_the_convolution() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        padded = b.emit(op.nn.pad(x, [0, 0, 0, 0, 1, 2, 3, 0]))
        return op.nn.conv2d(padded, weight(5, 4, 3, 3), padding=(1, 0, 0, 1), strides=2)

    after = apply(Rewrite(), build, [IMAGE])
    ((name, conv),) = calls(after)
    assert name == "nn.conv2d"
    assert [int(n) for n in conv.attrs.padding] == [2, 3, 2, 1]


def test_pads_of_one_and_three_axes_go_into_the_convolution_too() -> None:
    def row(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        padded = b.emit(op.nn.pad(x, [0, 0, 0, 0, 4, 1]))
        return op.nn.conv1d(padded, weight(5, 4, 3), padding=(0, 2), dilation=2)

    def volume(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        padded = b.emit(op.nn.pad(x, [0, 0, 0, 0, 1, 0, 0, 2, 3, 1]))
        return op.nn.conv3d(padded, weight(5, 4, 2, 2, 2), padding=(0, 1, 0, 1, 0, 1))

    cases = (row, normal(2, 4, 19), [4, 3]), (volume, normal(2, 4, 3, 5, 6), [1, 1, 3, 1, 2, 2])
    for build, image, expected in cases:
        ((_, conv),) = calls(apply(Rewrite(), build, [image]))
        assert [int(n) for n in conv.attrs.padding] == expected


def test_a_pad_that_others_read_stays_for_them() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        padded = b.emit(op.nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1]))
        return relax.Tuple([b.emit(op.nn.conv2d(padded, weight(5, 4, 3, 3))), padded])

    assert sorted(names(apply(Rewrite(), build, [IMAGE]))) == ["nn.conv2d", "nn.pad"]


@pytest.mark.parametrize(
    ("widths", "options"),
    [
        ([0, 0, 0, 1, 1, 1, 1, 1], {}),
        ([1, 0, 0, 0, 1, 1, 1, 1], {}),
        ([0, 0, 0, 0, 1, 1, 1, 1], {"pad_value": 1.0}),
        ([0, 0, 0, 0, 1, 1, 1, 1], {"pad_mode": "reflect"}),
    ],
)
def test_other_pads_stay(widths: list[int], options: dict) -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.nn.conv2d(b.emit(op.nn.pad(x, widths, **options)), weight(5, 4 + sum(widths[2:4]), 3, 3))

    unchanged(Rewrite(), build, [IMAGE])
