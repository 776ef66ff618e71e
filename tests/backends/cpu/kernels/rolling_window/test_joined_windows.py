"""A pointwise convolution joins the depthwise one behind it, and stays apart with a reason where it must."""

from __future__ import annotations

import pytest
from tvm import relax
from tvm.relax import op

from backends.cpu.kernels.rolling_window.read import read_rolling_window
from fusion.declined import Declined
from tests.backends.cpu.kernels import joined
from tests.backends.cpu.kernels.anchored import one_kernel
from tests.passes.modules import Build, normal, weight

X = normal(1, 8, 8, 6)


def grouped(build: Build, reason: str = "") -> tuple[int, list[str], int]:
    """Return how many kernels are left, why edges stayed, and how many pairs were asked for."""
    kernels, kept, asked = joined.grouped(build, [X], read_rolling_window, reason)
    return kernels, kept, len(asked)


def expand(b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    return b.emit(op.clip(b.emit(op.add(op.nn.conv2d(x, weight(20, 6, 1, 1), data_layout="NHWC"), weight(20))), 0, 6))


def window(b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    return b.emit(op.nn.conv2d(x, weight(20, 1, 3, 3), padding=1, groups=20, data_layout="NHWC"))


def pair(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return op.nn.relu(op.add(window(b, expand(b, x)), weight(20)))


def test_a_pair_and_what_is_behind_it_is_one_kernel() -> None:
    assert grouped(pair) == (1, [], 1)


def test_the_judge_keeps_a_pair_in_two_kernels() -> None:
    kernels, reasons, asked = grouped(pair, reason="too slow")
    assert (kernels, asked) == (2, 1)
    assert "too slow" in reasons


def _image_returned(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    image = expand(b, x)
    return relax.Tuple([image, window(b, image)])


def _image_read_twice(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    image = expand(b, x)
    return op.add(window(b, image), image)


def _two_windows(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return window(b, window(b, expand(b, x)))


def _scaled_by_its_mean(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    image = expand(b, x)
    return window(b, b.emit(op.multiply(image, b.emit(op.mean(image, [1, 2], keepdims=True)))))


DECLINED: dict[str, tuple[Build, str, int, int]] = {
    "the image is returned": (_image_returned, "used elsewhere", 2, 0),
    "the image is read twice": (_image_read_twice, "used elsewhere", 2, 0),
    "the second window": (_two_windows, "complex operator", 2, 1),
    "a mean of the image": (_scaled_by_its_mean, "complex operator", 3, 0),
}


@pytest.mark.parametrize("name", DECLINED)
def test_pairs_decline_with_a_reason(name: str) -> None:
    build, reason, least, pairs = DECLINED[name]
    kernels, reasons, asked = grouped(build)
    assert kernels >= least
    assert any(reason in given for given in reasons), reasons
    assert asked == pairs


def _inverted_residual(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    made = b.emit(pair(b, x))
    return op.add(b.emit(op.nn.conv2d(made, weight(6, 20, 1, 1), data_layout="NHWC")), x)


def _separable(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    made = b.emit(op.nn.relu(op.nn.conv2d(x, weight(6, 1, 3, 3), padding=1, groups=6, data_layout="NHWC")))
    return op.nn.relu(op.nn.conv2d(made, weight(20, 6, 1, 1), data_layout="NHWC"))


def _separable_read_twice(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    made = b.emit(op.nn.conv2d(x, weight(6, 1, 3, 3), padding=1, groups=6, data_layout="NHWC"))
    return op.add(op.nn.conv2d(made, weight(6, 6, 1, 1), data_layout="NHWC"), made)


def _scaled_in_front(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    """A squeeze and excitation stands between the window and its projection."""
    made = b.emit(op.nn.conv2d(x, weight(6, 1, 3, 3), padding=1, groups=6, data_layout="NHWC"))
    scaled = b.emit(op.multiply(made, b.emit(op.sigmoid(b.emit(op.mean(made, [1, 2], keepdims=True))))))
    return op.nn.conv2d(scaled, weight(6, 6, 1, 1), data_layout="NHWC")


def test_a_projection_joins_the_window_before_it() -> None:
    assert grouped(_inverted_residual) == (1, [], 2)
    assert grouped(_separable) == (1, [], 1)


def _pool(b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    return b.emit(op.nn.max_pool2d(x, [3, 3], [2, 2], [1, 1, 1, 1], layout="NHWC"))


def _convolution_and_pool(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    image = b.emit(op.nn.relu(op.nn.conv2d(x, weight(20, 6, 3, 3), padding=1, data_layout="NHWC")))
    return op.nn.relu(op.add(_pool(b, image), weight(20)))


def _pool_of_an_image_read_twice(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    image = expand(b, x)
    return relax.Tuple([_pool(b, image), b.emit(op.mean(image, [1, 2]))])


def _two_pools(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return _pool(b, _pool(b, expand(b, x)))


def test_a_pool_and_what_is_behind_it_join_the_convolution_before() -> None:
    assert grouped(_convolution_and_pool) == (1, [], 1)


@pytest.mark.parametrize(("build", "least"), [(_pool_of_an_image_read_twice, 2), (_two_pools, 2)])
def test_a_pool_stays_apart_where_its_image_is_read_elsewhere_or_a_pool_is(build: Build, least: int) -> None:
    assert grouped(build)[0] >= least


def test_a_pool_and_a_product_are_asked_for_as_rows() -> None:
    """No convolution makes the image: the pool makes the rows of the product."""

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.nn.conv2d(_pool(b, x), weight(20, 6, 1, 1), data_layout="NHWC")

    assert grouped(build)[2] == 0


def test_a_projection_stays_apart_where_the_judge_says_so() -> None:
    kernels, reasons, _ = grouped(_separable, reason="too slow")
    assert kernels == 2
    assert "too slow" in reasons


@pytest.mark.parametrize("build", [_separable_read_twice, _scaled_in_front])
def test_a_projection_stays_apart_where_the_window_is_read_elsewhere(build: Build) -> None:
    assert grouped(build)[0] >= 2


def _scaled_first(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    """A prologue, which a matmul takes into its kernel, before the pair."""
    return window(b, expand(b, b.emit(op.nn.relu(x))))


def test_what_makes_the_first_convolution_s_image_stays_outside() -> None:
    """Random graph 1741: the kernel read a buffer that nothing wrote."""
    with pytest.raises(Declined, match="made inside the kernel"):
        read_rolling_window(one_kernel(_scaled_first, [X]))
