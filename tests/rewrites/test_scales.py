"""Scales and shifts: which constants they go into, and which not."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from fusion.constants import constant
from fusion.rewrites import Rewrite
from fusion.tensors import as_numpy
from tests.passes.modules import Build, apply, calls, module, names, normal, unchanged, weight

IMAGE = normal(2, 4, 6, 7)


def batch_norm(b: relax.BlockBuilder, x: relax.Expr, channels: int) -> relax.Expr:
    variance = relax.const(np.abs(normal(channels)) + 0.5)
    whole = b.emit(
        op.nn.batch_norm(
            x, weight(channels), weight(channels, seed=1), weight(channels, seed=2), variance, 1, training=False
        )
    )
    return b.emit(relax.TupleGetItem(whole, 0))


def convolution(b: relax.BlockBuilder, x: relax.Var) -> relax.Var:
    return b.emit(op.nn.conv2d(x, weight(5, 4, 3, 3)))


SCALED: dict[str, tuple[Build, list[str]]] = {
    "batch norm": (lambda b, x: batch_norm(b, convolution(b, x), 5), ["nn.conv2d", "add"]),
    "bias and batch norm": (
        lambda b, x: batch_norm(b, b.emit(op.add(convolution(b, x), weight(5, 1, 1))), 5), ["nn.conv2d", "add"],
    ),
    "a number": (lambda b, x: op.multiply(convolution(b, x), relax.const(np.float32(3))), ["nn.conv2d"]),
    "the other side": (lambda b, x: op.multiply(weight(1, 5, 1, 1), convolution(b, x)), ["nn.conv2d"]),
    "division": (
        lambda b, x: op.divide(convolution(b, x), relax.const(np.float32([[[2]], [[4]], [[1]], [[8]], [[3]]]))),
        ["nn.conv2d"],
    ),
    "subtraction": (
        lambda b, x: op.multiply(op.subtract(convolution(b, x), weight(5, 1, 1)), weight(5, 1, 1, seed=3)),
        ["nn.conv2d", "subtract"],
    ),
    "transposed": (
        lambda b, x: batch_norm(b, b.emit(op.nn.conv2d_transpose(x, weight(4, 5, 3, 3), 2)), 5),
        ["nn.conv2d_transpose", "add"],
    ),
    "number minus value": (
        lambda b, x: op.multiply(op.subtract(weight(5, 1, 1), convolution(b, x)), relax.const(np.float32(2))),
        ["nn.conv2d", "subtract"],
    ),
    "behind a view": (
        lambda b, x: op.multiply(op.reshape(convolution(b, x), (2, 5, 20)), weight(5, 1)), ["nn.conv2d", "reshape"],
    ),
    "behind a permutation": (
        lambda b, x: op.multiply(op.permute_dims(convolution(b, x), [0, 2, 3, 1]), weight(5)),
        ["nn.conv2d", "permute_dims"],
    ),
    "two branches": (
        lambda b, x: op.multiply(
            op.subtract(convolution(b, x), b.emit(op.nn.conv2d(x, weight(5, 4, 3, 3, seed=4)))), weight(5, 1, 1)
        ),
        ["nn.conv2d", "nn.conv2d", "subtract"],
    ),
    "alone": (lambda b, x: batch_norm(b, x, 4), ["multiply", "add"]),
}  # fmt: skip


@pytest.mark.parametrize("name", SCALED)
def test_scales_go_into_weights(name: str) -> None:
    build, expected = SCALED[name]
    assert names(apply(Rewrite(), build, [IMAGE])) == expected


def test_scales_of_columns_go_into_a_matrix() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.multiply(op.add(op.matmul(x, weight(8, 5)), weight(5)), weight(5, seed=1))

    assert names(apply(Rewrite(), build, [normal(2, 3, 8)])) == ["matmul", "add"]


KEPT: dict[str, Build] = {
    "varies over rows": lambda b, x: op.multiply(convolution(b, x), weight(4, 1)),
    "varies over columns": lambda b, x: op.multiply(convolution(b, x), weight(5)),
    "makes the result larger": lambda b, x: op.multiply(convolution(b, x), weight(1, 1, 5, 1, 1)),
    "not constant": lambda b, x: op.multiply(convolution(b, x), b.emit(op.mean(x, keepdims=True))),
    "number over value": lambda b, x: op.divide(relax.const(np.float32(1)), convolution(b, x)),
    "behind an activation": lambda b, x: op.multiply(b.emit(op.nn.relu(convolution(b, x))), relax.const(np.float32(2))),
}


@pytest.mark.parametrize("name", KEPT)
def test_scales_that_cannot_be_folded_stay(name: str) -> None:
    unchanged(Rewrite(), KEPT[name], [IMAGE])


def test_a_value_with_two_readers_keeps_its_weights() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = convolution(b, x)
        return op.add(op.multiply(y, relax.const(np.float32(2))), op.exp(y))

    unchanged(Rewrite(), build, [IMAGE])


def test_a_scale_goes_through_heads_into_the_weights_of_queries() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var, keys: relax.Var) -> relax.Expr:
        made = op.add(op.matmul(x, weight(8, 12)), weight(12))
        heads = op.permute_dims(op.reshape(made, (2, 5, 3, 4)), [0, 2, 1, 3])
        return op.divide(op.matmul(heads, keys), relax.const(np.float32(2)))

    after = apply(Rewrite(), build, [normal(2, 5, 8), normal(2, 3, 4, 5)])
    assert names(after) == ["matmul", "add", "reshape", "permute_dims", "matmul"]


def test_a_scale_of_weights_that_two_layers_share_is_made_once() -> None:
    shared = weight(8, 8)

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        for _ in range(2):
            x = b.emit(op.exp(b.emit(op.multiply(b.emit(op.matmul(x, shared)), relax.const(np.float32(0.1))))))
        return x

    after = Rewrite()(module(build, [normal(3, 8)]))
    first, second = (value.args[1] for name, value in calls(after) if name == "matmul")
    assert first.same_as(second)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("padding", [0, 1])
def test_scale_and_shift_in_front_of_a_convolution(groups: int, padding: int) -> None:
    """A hard swish whose sixth goes into the next weights, and a shift that only stays where the border is padded."""

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        gate = b.emit(op.clip(b.emit(op.add(x, relax.const(np.float32(3)))), 0, 6))
        swish = op.divide(b.emit(op.multiply(x, gate)), relax.const(np.float32(6)))
        moved = b.emit(op.add(b.emit(op.multiply(swish, weight(4, 1, 1))), weight(4, 1, 1, seed=2)))
        made = b.emit(op.nn.conv2d(moved, weight(8, 4 // groups, 3, 3), padding=padding, groups=groups))
        return op.add(made, weight(8, 1, 1))

    stays = ["multiply", "add"] if padding else []
    assert names(apply(Rewrite(), build, [IMAGE])) == ["add", "clip", "multiply", *stays, "nn.conv2d", "add"]


@pytest.mark.parametrize("factor", [1e-39, float("inf"), float("nan")])
def test_scales_that_are_no_normal_numbers_stay(factor: float) -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.multiply(b.emit(op.multiply(x, relax.const(np.float32(factor)))), relax.const(np.float32(0.5)))

    assert names(Rewrite()(module(build, [normal(3)]))) == ["multiply", "multiply"]


def test_weights_that_would_overflow_stay() -> None:
    large = relax.const(np.full((3, 3), 1e30, "float32"))

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.multiply(b.emit(op.matmul(x, large)), relax.const(np.float32(1e20)))

    result = Rewrite().run(module(build, [normal(2, 3)]))
    assert names(result.mod) == ["matmul", "multiply"]
    assert [reason for *_, reason in result.fact.declines.values] == ["weights would overflow"]


def _narrow_convolution(b: relax.BlockBuilder, x: relax.Var, taps: np.ndarray, scale: float | None) -> relax.Expr:
    """A convolution of narrow numbers, rounded, and a normalisation behind it, or a scale of its sums."""
    sums = b.emit(op.nn.conv2d(x, constant(taps), padding=1, out_dtype="float32"))
    if scale is not None:
        return op.multiply(sums, relax.const(np.float32(scale)))
    rounded = b.emit(op.astype(sums, str(taps.dtype)))
    return op.astype(batch_norm(b, b.emit(op.astype(rounded, "float32")), len(taps)), str(taps.dtype))


def _taps(dtype: str, size: float = 1.0) -> np.ndarray:
    return (normal(5, 4, 3, 3) * size).astype(np.dtype(dtype))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_norm_behind_a_convolution_of_narrow_numbers_goes_into_its_weights(dtype: str) -> None:
    """They are rounded once, and keep their type."""
    image = IMAGE.astype(np.dtype(dtype))
    before = module(lambda b, x: _narrow_convolution(b, x, _taps(dtype), None), [image])
    after = Rewrite()(before)
    assert names(after) == ["nn.conv2d", "add", "astype"]
    (weights,) = (as_numpy(call.args[1].value) for name, call in calls(after) if name == "nn.conv2d")
    expected = _taps(dtype).astype(np.float64) * weight(5).value.numpy()[:, None, None, None]
    variance = (np.abs(normal(5)) + 0.5).astype(np.float64)
    expected /= np.sqrt(variance + 1e-5)[:, None, None, None]
    unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    np.testing.assert_allclose(weights.astype(np.float64), expected, rtol=1.001 * unit, atol=1e-7)


@pytest.mark.parametrize(
    ("dtype", "size", "scale", "why"),
    [
        ("float16", 1e3, 1e3, "weights would overflow"), ("float16", 1e-2, 1e-4, "weights would lose digits"),
        ("bfloat16", 1e-2, 1e-4, ""), ("float16", 1.0, 1e-2, ""),
    ],
)  # fmt: skip
def test_narrow_weights_stay_where_their_exponent_has_no_room(dtype: str, size: float, scale: float, why: str) -> None:
    image = IMAGE.astype(np.dtype(dtype))
    result = Rewrite().run(module(lambda b, x: _narrow_convolution(b, x, _taps(dtype, size), scale), [image]))
    assert names(result.mod) == (["nn.conv2d", "multiply"] if why else ["nn.conv2d"])
    assert [reason for *_, reason in result.fact.declines.values] == ([why] if why else [])


@pytest.mark.parametrize("dtype", ["float16", "int32"])
def test_other_types_stay(dtype: str) -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        two = relax.const(np.array(2, dtype))
        return op.multiply(b.emit(op.multiply(x, two)), two)

    unchanged(Rewrite(), build, [normal(3, 4).astype(dtype)])


@pytest.mark.parametrize("operator", ["layer_norm", "rms_norm", "instance_norm", "group_norm"])
def test_scales_go_into_normalisations(operator: str) -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        last, channels = (weight(7), weight(7, seed=1)), (weight(4), weight(4, seed=1))
        made = {
            "layer_norm": lambda: op.nn.layer_norm(x, *last, [3]),
            "rms_norm": lambda: op.nn.rms_norm(x, last[0], [3]),
            "instance_norm": lambda: op.nn.instance_norm(x, *channels, 1, [2, 3]),
            "group_norm": lambda: op.nn.group_norm(x, *channels, 2, 1, [2, 3]),
        }[operator]()
        scale = weight(7, seed=2) if operator in ("layer_norm", "rms_norm") else weight(4, 1, 1, seed=2)
        scaled = b.emit(op.multiply(b.emit(made), scale))
        return scaled if operator == "rms_norm" else op.subtract(scaled, relax.const(np.float32(0.25)))

    assert names(apply(Rewrite(), build, [IMAGE])) == [f"nn.{operator}"]
