"""Two convolutions join where the judge says so, and stay apart with a reason where one kernel cannot be."""

from __future__ import annotations

import pytest
from tvm import relax
from tvm.relax import op

from backends.cpu.kernels.conv_chain.read import read_conv_chain
from fusion.declined import Declined
from tests.backends.cpu.kernels import joined
from tests.backends.cpu.kernels.anchored import one_kernel
from tests.passes.modules import Build, normal, weight

X = normal(1, 9, 8, 6)


def grouped(build: Build, reason: str = "") -> tuple[int, list[str]]:
    """Return how many kernels are left, and why edges stayed."""
    kernels, kept, _ = joined.grouped(build, [X], read_conv_chain, reason)
    return kernels, kept


def conv(b: relax.BlockBuilder, x: relax.Expr, out: int, depth: int, kernel: int, groups: int = 1) -> relax.Expr:
    made = op.nn.conv2d(
        x, weight(out, depth // groups, kernel, kernel), padding=kernel // 2, groups=groups, data_layout="NHWC"
    )
    return b.emit(op.nn.relu(b.emit(op.add(b.emit(made), weight(out)))))


def _window_then_pointwise(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return conv(b, conv(b, x, 20, 6, 3), 5, 20, 1)


def _pointwise_then_window(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return op.add(conv(b, conv(b, x, 4, 6, 1), 6, 4, 3), x)


def _two_windows(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return conv(b, conv(b, x, 20, 6, 3), 7, 20, 5)


@pytest.mark.parametrize("build", [_window_then_pointwise, _pointwise_then_window, _two_windows])
def test_two_convolutions_and_what_is_behind_each_are_one_kernel(build: Build) -> None:
    assert grouped(build) == (1, [])
    kernels, reasons = grouped(build, "too slow")
    assert kernels == 2
    assert "too slow" in reasons


def test_a_third_convolution_stays_apart() -> None:
    kernels, _ = grouped(lambda b, x: conv(b, conv(b, conv(b, x, 8, 6, 3), 8, 8, 3), 8, 8, 3))
    assert kernels == 2


def _image_returned(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    image = conv(b, x, 20, 6, 3)
    return relax.Tuple([image, conv(b, image, 5, 20, 3)])


def _image_added(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    image = conv(b, x, 20, 6, 3)
    return op.add(conv(b, image, 20, 20, 3), image)


def _image_turned(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    image = b.emit(op.permute_dims(conv(b, x, 20, 6, 3), [0, 2, 1, 3]))
    return conv(b, image, 5, 20, 3)


def _grouped(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return conv(b, conv(b, x, 20, 6, 3), 16, 20, 3, groups=2)


def _grouped_first(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return conv(b, conv(b, x, 20, 6, 3, groups=2), 16, 20, 3)


def _skipping(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return op.nn.conv2d(conv(b, x, 20, 6, 3), weight(5, 20, 1, 1), strides=2, data_layout="NHWC")


DECLINED: dict[str, tuple[Build, str]] = {
    "the image is returned": (_image_returned, "needed outside"),
    "the image is read behind": (_image_added, "reads a value between"),
    "the image is moved": (_image_turned, "moved between"),
    "the second has groups": (_grouped, "the second convolution has groups"),
    "the first has groups": (_grouped_first, "a grouped convolution makes the image"),
    "the second skips rows": (_skipping, "the window skips rows"),
}


@pytest.mark.parametrize("name", DECLINED)
def test_convolutions_decline_with_a_reason(name: str) -> None:
    build, reason = DECLINED[name]
    kernels, reasons = grouped(build)
    assert kernels >= 2
    assert any(reason in given for given in reasons), reasons


def _scaled_first(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    """A prologue, which a matmul takes into its kernel, before a pointwise convolution and a window."""
    return conv(b, conv(b, b.emit(op.nn.relu(x)), 20, 6, 1), 20, 20, 3)


def test_what_makes_the_first_convolution_s_image_stays_outside() -> None:
    """Random graph 1741: the kernel read a buffer that nothing wrote."""
    with pytest.raises(Declined, match="made inside the kernel"):
        read_conv_chain(one_kernel(_scaled_first, [X]))


def test_two_matmuls_and_two_convolutions_of_one_image_are_no_chain() -> None:
    def matmuls(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return conv(b, conv(b, x, 20, 6, 1), 5, 20, 1)

    def branches(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.add(conv(b, x, 20, 6, 3), conv(b, x, 20, 6, 5))

    for build in (matmuls, branches):
        with pytest.raises(Declined):
            read_conv_chain(one_kernel(build, [X]))
