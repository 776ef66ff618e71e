"""Anchors with operands in bfloat16 against float64 on the rounded operands: what is left is the error of the sums."""

from __future__ import annotations

from math import prod

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from onnx.parser import parse_graph
from tvm import relax

import fusion
from fusion import context
from tests.backends.cpu.kernels.anchored import Epilogue, check, convolve, normal, run
from tests.backends.cpu.kernels.drawn import (
    EXAMPLES,
    channel_counts,
    epilogues,
    extents,
    images,
    paddings,
    pairs,
    seeds,
    threads,
)

pytestmark = pytest.mark.skipif(
    not context.resolve().compiler.machine.dot_bfloat16, reason="this CPU has no instructions for bfloat16"
)
BFLOAT16 = ml_dtypes.bfloat16


def rounded(array: np.ndarray) -> np.ndarray:
    """Return the nearest bfloat16 numbers, to even, as float64."""
    return array.astype(BFLOAT16).astype("float64")


def narrow(builder: relax.BlockBuilder, value: relax.Expr) -> relax.Expr:
    return builder.emit(relax.op.astype(value, "bfloat16"))


def matmul(builder: relax.BlockBuilder, left: relax.Expr, right: relax.Expr) -> relax.Expr:
    return relax.op.matmul(narrow(builder, left), right, out_dtype="float32")


@EXAMPLES
@given(st.lists(extents, min_size=1, max_size=3), extents, extents, epilogues(), threads, seeds)
def test_matmul(rows: list[int], depth: int, channels: int, steps: tuple[str, ...], many: int, seed: int) -> None:
    assume(prod(rows) * max(depth, channels) < 60_000)
    data, weight = normal((*rows, depth), seed), normal((depth, channels), seed)
    epilogue = Epilogue(steps, (*rows, channels), seed)

    def build(b: relax.BlockBuilder, x: relax.Var, *extra: relax.Var) -> relax.Expr:
        return epilogue.relax(b, matmul(b, x, relax.const(weight.astype(BFLOAT16))), extra)

    ran = run(build, [data, *epilogue.arrays()], "llvm", many)
    check(ran, epilogue.numpy(rounded(data) @ rounded(weight)))
    assert "matmul" in ran.templates()


@EXAMPLES
@given(st.lists(st.integers(1, 3), max_size=2), extents, extents, st.sampled_from([16, 32, 80]), threads, seeds)
def test_batch_matmul(batch: list[int], rows: int, depth: int, channels: int, many: int, seed: int) -> None:
    left, right = normal((2, *batch, rows, depth), seed), normal((*batch, depth, channels), seed + 1)

    def build(b: relax.BlockBuilder, x: relax.Var, y: relax.Var) -> relax.Expr:
        return matmul(b, x, narrow(b, y))

    ran = run(build, [left, right], "llvm", many)
    check(ran, [rounded(left) @ rounded(right)])
    assert "batch_matmul" in ran.templates()


@EXAMPLES
@given(images, channel_counts, pairs, pairs, paddings, pairs, epilogues(), threads, seeds)
def test_conv2d(
    size: tuple, channels: tuple, kernel: tuple, strides: tuple, padding: tuple, dilation: tuple,
    steps: tuple[str, ...], many: int, seed: int,
) -> None:  # fmt: skip
    groups, depth, out = channels
    assume(groups == 1 or depth > 1)
    spans = [(k - 1) * d + 1 - a - b for k, d, a, b in zip(kernel, dilation, padding[:2], padding[2:], strict=True)]
    image = [max(extent, span) for extent, span in zip(size[1:], spans, strict=True)]
    data = normal((size[0], *image, groups * depth), seed)
    weight = normal((groups * out, depth, *kernel), seed + 1) / np.float32((depth * prod(kernel)) ** 0.5)
    expected = convolve(rounded(data), rounded(weight), strides, padding, dilation, groups)
    epilogue = Epilogue(steps, expected.shape, seed)

    def build(b: relax.BlockBuilder, x: relax.Var, *extra: relax.Var) -> relax.Expr:
        conv = relax.op.nn.conv2d(
            narrow(b, x), relax.const(weight.astype(BFLOAT16)), strides, padding, dilation, groups,
            data_layout="NHWC", out_dtype="float32",
        )  # fmt: skip
        return epilogue.relax(b, conv, extra)

    ran = run(build, [data, *epilogue.arrays()], "llvm", many)
    check(ran, epilogue.numpy(expected))
    assert {"conv2d", "matmul"} & set(ran.templates())


def test_float32_by_rows_that_a_product_of_bfloat16_makes() -> None:
    """The gate of an image's channels was a kernel that lacked the function of what it multiplies in bfloat16, as its
    second product, of few channels, needs none."""
    weights = {
        name: normal(shape, seed)
        for seed, (name, shape) in enumerate(
            {"w": (8, 32, 1, 1), "b": (8,), "v": (32, 8, 1, 1), "c": (32,)}.items(), 1
        )
    }
    x = normal((1, 32, 6, 6), 0)
    graph = parse_graph(
        """gate (float[1, 32, 6, 6] x) => (float[1, 32, 6, 6] y) {
            mean = GlobalAveragePool(x)
            rows = Conv(mean, w, b)
            few = Relu(rows)
            wide = Conv(few, v, c)
            gate = HardSigmoid(wide)
            y = Mul(gate, x)
        }"""
    )
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    made = fusion.compile(model, precision="bf16", strict=True)
    (form,) = made.specializations
    assert [kernel.template for kernel in form.kernels.values()].count("matmul") == 1
    w, b, v, c = (array.astype("float64").reshape(len(array), -1) for array in weights.values())
    few = np.maximum(w @ x.mean(axis=(2, 3), dtype="float64").T + b, 0)
    gate = np.clip(0.2 * (v @ few + c) + 0.5, 0, 1).reshape(1, 32, 1, 1)
    (y,) = made.run({"x": x}).values()
    np.testing.assert_allclose(y, gate * x, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("channels", [16, 33, 48])
def test_results_are_rounded_to_nearest_even(channels: int) -> None:
    """Sums of small whole numbers are exact, and about 300 of them lie between two bfloat16 numbers."""
    rng = np.random.default_rng(channels)
    data, weight = (rng.integers(-9, 10, shape).astype("float32") for shape in ((29, 65), (65, channels)))

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return narrow(b, b.emit(matmul(b, x, relax.const(weight.astype(BFLOAT16)))))

    exact = data @ weight
    assert np.any(exact.astype(BFLOAT16) != exact)
    (got,) = run(build, [data], "llvm", 2).outputs
    np.testing.assert_array_equal(got.astype("float32"), exact.astype(BFLOAT16).astype("float32"))


@pytest.mark.parametrize("steps", [("bias", "relu"), ("sigmoid",)])
def test_results_of_an_epilogue_are_rounded(steps: tuple[str, ...]) -> None:
    """A costly epilogue reads the tile from scratch, a cheap one from registers."""
    data, weight = normal((29, 65), 0), normal((65, 48), 1) / np.float32(8)
    epilogue = Epilogue(steps, (29, 48), 2)

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return narrow(b, epilogue.relax(b, matmul(b, x, relax.const(weight.astype(BFLOAT16))), []))

    ran = run(build, [data], "llvm", 2)
    (expected,) = epilogue.numpy(rounded(data) @ rounded(weight))
    half_a_step = 2.0**-8
    np.testing.assert_allclose(ran.outputs[0].astype("float64"), expected, rtol=half_a_step, atol=1e-5)
    assert ran.templates() == ["matmul", "stitch_stages"]


@pytest.mark.parametrize("depth", [7, 33])
def test_an_odd_depth_does_not_read_the_next_row(depth: int) -> None:
    data, weight = normal((9, depth), 0), normal((depth, 16), 1)
    data[4] = np.nan

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return matmul(b, x, relax.const(weight.astype(BFLOAT16)))

    (got,) = run(build, [data], "llvm", 1).outputs
    assert np.isnan(got[4]).all()
    assert np.isfinite(np.delete(got, 4, axis=0)).all()


def test_other_cpus_get_loops_in_float32() -> None:
    data, weight = normal((9, 31), 0), normal((31, 16), 1)

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return matmul(b, x, relax.const(weight.astype(BFLOAT16)))

    ran = run(build, [data], "llvm -mcpu=haswell", 1)
    check(ran, [rounded(data) @ rounded(weight)])
    assert "matmul" not in ran.templates()
