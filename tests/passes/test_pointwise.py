"""1x1 convolutions of an image that lies row-major: right in every form, and without a transpose where that pays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, helper, numpy_helper

import fusion
from tests.module import small_models
from tests.module.small_models import FLOAT

pytestmark = pytest.mark.unoptimised


def convolution(
    batch: int, groups: int, per_group: tuple[int, int], image: tuple[int, int], stride: int
) -> ModelProto:
    """Return relu(conv(x) + bias + r) / (1 + column), of which every part reads the result at another index."""
    channels, made = (groups * count for count in per_group)
    rng = np.random.default_rng(made)
    weights = {
        "w": (rng.standard_normal((made, per_group[0], 1, 1)) / per_group[0] ** 0.5).astype(np.float32),
        "b": rng.standard_normal(made).astype(np.float32),
        "column": 1 + rng.random((1, 1, 1, -(-image[1] // stride))).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], group=groups, strides=[stride, stride]),
        helper.make_node("Add", ["c", "r"], ["s"]),
        helper.make_node("Relu", ["s"], ["p"]),
        helper.make_node("Div", ["p", "column"], ["y"]),
    ]
    shape = [batch, made, *(-(-extent // stride) for extent in image)]
    inputs = [("x", FLOAT, [batch, channels, *image]), ("r", FLOAT, shape)]
    return small_models.model(nodes, inputs, [("y", FLOAT, shape)], weights)


def expected(model: ModelProto, x: np.ndarray, r: np.ndarray, groups: int, stride: int) -> np.ndarray:
    w, b, column = (numpy_helper.to_array(value).astype(np.float64) for value in model.graph.initializer)
    batch, channels = x.shape[:2]
    images = x[:, :, ::stride, ::stride].astype(np.float64).reshape(batch, groups, channels // groups, -1)
    product = w.reshape(groups, -1, channels // groups) @ images
    return np.maximum(product.reshape(r.shape) + b[:, None, None] + r, 0) / column


def check(
    batch: int, groups: int, per_group: tuple[int, int], image: tuple[int, int], stride: int = 1
) -> fusion.CompiledModule:
    model = convolution(batch, groups, per_group, image, stride)
    compiled = fusion.compile(model, threads=2)
    rng = np.random.default_rng(0)
    x, r = (rng.standard_normal(spec.shape).astype(np.float32) for spec in compiled.inputs)
    (y,) = compiled(x, r)
    np.testing.assert_allclose(y, expected(model, x, r, groups, stride), atol=2e-5)
    return compiled


def templates(compiled: fusion.CompiledModule) -> list[str]:
    return [kernel.template for kernel in compiled.profile().kernels]


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    batch=st.integers(1, 3), groups=st.sampled_from([1, 1, 2, 4]),
    per_group=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    image=st.tuples(st.integers(1, 20), st.integers(1, 20)), stride=st.integers(1, 3),
)  # fmt: skip
def test_any_shape_is_right(
    batch: int, groups: int, per_group: tuple[int, int], image: tuple[int, int], stride: int
) -> None:
    check(batch, groups, per_group, image, stride)


@pytest.mark.parametrize("groups", [1, 4])
def test_a_row_major_image_is_multiplied_as_it_lies(groups: int) -> None:
    compiled = check(1, groups, (32 // groups, 64 // groups), (28, 28))
    assert templates(compiled) == ["batch_matmul"]


def test_few_pixels_and_many_channels_go_channels_last() -> None:
    assert "matmul" in templates(check(1, 1, (1024, 1024), (1, 3)))
