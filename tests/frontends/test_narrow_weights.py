"""MatMulNBits, by which ONNX users quantise decoders to 4 bits, beside ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import fusion
from fusion import CompiledModule
from fusion.errors import UnsupportedOperatorError
from tests.frontends.against_onnxruntime import onnxruntime_runs
from tests.frontends.narrow.networks import Network
from tests.targets import AVX2, runs_here

TARGETS = [target for target in ("llvm", AVX2, "llvm -mcpu=skylake-avx512") if runs_here(target)]
"""VPDPBUSD where this machine has it, and VPMADDUBSW of both lengths."""
TOLERANCE = {"float32": 1e-5, "float16": 1e-3}
BYTES, FLOATS = "bytes", "floats"
KINDS = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16}


def operands(
    rng: np.random.Generator, depth: int, channels: int, block: int, zeros: str = "", dtype: str = "float32"
) -> dict[str, np.ndarray]:
    """Return weights, scales, and the zero points of that kind."""
    blocks = -(-depth // block)
    found = {
        "weights": rng.integers(0, 256, (channels, blocks, block // 2), dtype=np.uint8),
        "scales": rng.uniform(-0.02, 0.02, channels * blocks).astype(dtype),
    }
    if zeros == BYTES:
        found["zeros"] = rng.integers(0, 256, channels * (-(-blocks // 2)), dtype=np.uint8)
    if zeros == FLOATS:
        found["zeros"] = rng.uniform(0, 15, channels * blocks).astype(dtype)
    return found


def model_of(
    given: Mapping[str, np.ndarray], sizes: tuple[int, int, int], rows: Sequence[int | str], dtype: str = "float32",
    level: int = 0, bias: np.ndarray | None = None, bits: int = 4,
) -> onnx.ModelProto:  # fmt: skip
    """Return a product of [*rows, depth] with a matrix of (depth, channels) in blocks of so many weights."""
    depth, channels, block = sizes
    names = [*given, *[""] * (3 - len(given)), *([] if bias is None else ["", "bias"])]
    node = helper.make_node(
        "MatMulNBits", ["x", *names], ["y"], domain="com.microsoft", K=depth, N=channels, bits=bits, block_size=block,
        accuracy_level=level,
    )  # fmt: skip
    tensors = [numpy_helper.from_array(value, name) for name, value in given.items()]
    tensors += [] if bias is None else [numpy_helper.from_array(bias, "bias")]
    infos = [
        [helper.make_tensor_value_info(name, KINDS[dtype], [*rows, width])]
        for name, width in (("x", depth), ("y", channels))
    ]
    graph = helper.make_graph([node], "narrow", *infos, tensors)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def exact(given: Mapping[str, np.ndarray], sizes: tuple[int, int, int], x: np.ndarray) -> np.ndarray:
    """Return the product in float64."""
    depth, channels, block = sizes
    weights = given["weights"]
    blocks = weights.shape[1]
    numbers = np.stack([weights & 15, weights >> 4], -1).reshape(channels, blocks, block).astype("float64")
    zeros = given.get("zeros", np.full(channels * blocks, 8.0))
    if zeros.dtype == np.uint8:
        pairs = zeros.reshape(channels, -1)
        zeros = np.stack([pairs & 15, pairs >> 4], -1).reshape(channels, -1)[:, :blocks]
    scales = given["scales"].astype("float64").reshape(channels, blocks, 1)
    matrix = (numbers - zeros.astype("float64").reshape(channels, blocks, 1)) * scales
    return x.astype("float64") @ matrix.reshape(channels, -1)[:, :depth].T


def judge(ours: np.ndarray, theirs: np.ndarray, right: np.ndarray, tolerance: float) -> None:
    """Raise where results are more than twice as far from `right` as ONNX Runtime's, and a tenth of the tolerance."""
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    far, allowed = (np.abs(each.astype("float64") - right).max(initial=0) for each in (ours, theirs))
    assert far <= 2 * allowed + tolerance / 10 * np.abs(right).max(initial=0)


def is_here(module: CompiledModule) -> bool:
    return not any(form.fallbacks for form in module.specializations)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("zeros", ["", BYTES, FLOATS])
@pytest.mark.parametrize("block", [16, 32, 64, 128, 256])
def test_products(block: int, zeros: str, target: str) -> None:
    rng = np.random.default_rng(block)
    for level, rows, depth, channels in ((0, 1, 4 * block, 64), (4, 7, 3 * block - 5, 77), (1, 64, 2 * block + 1, 33)):
        sizes = depth, channels, block
        given = operands(rng, *sizes, zeros)
        x = rng.normal(size=(rows, depth)).astype("float32")
        model = model_of(given, sizes, x.shape[:1], level=level)
        module = fusion.compile(model, threads=2, target=target)
        assert is_here(module)
        (ours,), (theirs,) = module(x), onnxruntime_runs(model, {"x": x})
        judge(ours, theirs, exact(given, sizes, x), TOLERANCE["float32"])


@pytest.mark.parametrize("zeros", ["", BYTES, FLOATS])
@pytest.mark.parametrize("level", [0, 4])
def test_half_precision(level: int, zeros: str) -> None:
    rng, sizes = np.random.default_rng(1), (96, 40, 32)
    given, bias = operands(rng, *sizes, zeros, "float16"), rng.normal(size=40).astype("float16")
    x = rng.normal(size=(2, 3, 96)).astype("float16")
    model = model_of(given, sizes, x.shape[:2], "float16", level, bias)
    module = fusion.compile(model, threads=1)
    assert is_here(module)
    (ours,), (theirs,) = module(x), onnxruntime_runs(model, {"x": x})
    judge(ours, theirs, exact(given, sizes, x) + bias.astype("float64"), TOLERANCE["float16"])


@pytest.mark.parametrize("level", [0, 4])
def test_any_number_of_rows(level: int, tmp_path: Path) -> None:
    rng, sizes = np.random.default_rng(2), (200, 100, 64)
    given = operands(rng, *sizes, BYTES)
    model = model_of(given, sizes, ["batch", "length"], level=level)
    as_given = model.SerializeToString(deterministic=True)
    module = fusion.compile(model, threads=2, wait=True)
    module.save(tmp_path / "narrow.fusion")
    for each in (module, fusion.load(tmp_path / "narrow.fusion")):
        for lead in ((1, 1), (2, 0), (0, 3), (7, 1), (1, 64), (3, 100), (5, 13)):
            x = rng.normal(size=(*lead, 200)).astype("float32")
            (ours,), (theirs,) = each(x), onnxruntime_runs(model, {"x": x})
            judge(ours, theirs, exact(given, sizes, x), TOLERANCE["float32"])
    assert is_here(module)
    assert len(module.specializations) == 1
    assert model.SerializeToString(deterministic=True) == as_given


@pytest.mark.parametrize("level", [0, 4])
def test_numbers_of_all_sizes(level: int) -> None:
    """Blocks of zeros, of equal numbers, of the largest and of small ones, in one row and in rows of their own; what is
    whole numbers is exact."""
    rng, sizes = np.random.default_rng(3), (6 * 64, 32, 64)
    given = operands(rng, *sizes)
    factors = np.array([0, 1e-30, 1e-12, 1, 1e12, 1e34], "float32")
    x = rng.normal(size=(7, 6, 64)).astype("float32")
    x[:6] *= factors[:, None, None]
    x[6] *= factors[:, None]
    x[1:3, 3] = 0.37 * factors[1:3, None]
    flat = x.reshape(7, -1)
    model = model_of(given, sizes, [7], level=level)
    (ours,), (theirs,) = fusion.compile(model, threads=1)(flat), onnxruntime_runs(model, {"x": flat})
    for made, other, right in zip(ours, theirs, exact(given, sizes, flat), strict=True):
        judge(made, other, right, TOLERANCE["float32"])
    whole = {**given, "scales": np.ones_like(given["scales"])}
    numbers = rng.integers(-127, 128, (6, 384)).astype("float32")
    numbers[:, ::64] = 127
    (made,) = fusion.compile(model_of(whole, sizes, [6], level=level), threads=1)(numbers)
    np.testing.assert_array_equal(made, exact(whole, sizes, numbers))


@pytest.mark.parametrize("level", [0, 4])
def test_tiny_numbers_keep_their_size(level: int) -> None:
    """Below 2^-104 rows have fewer bits: what they are multiplied by is a normal number at most."""
    rng, sizes = np.random.default_rng(7), (64, 32, 32)
    given = operands(rng, *sizes)
    given["scales"] *= 1e4
    x = (rng.uniform(-1, 1, (1, 64)) * 3e-37).astype("float32")
    (made,) = fusion.compile(model_of(given, sizes, [1], level=level), threads=1)(x)
    right = exact(given, sizes, x)
    np.testing.assert_allclose(made, right, rtol=0, atol=0.05 * np.abs(right).max())


def test_what_is_not_finite_is_nan_in_its_row() -> None:
    rng, sizes = np.random.default_rng(4), (64, 32, 32)
    x = rng.normal(size=(3, 64)).astype("float32")
    x[0, 5], x[1, 40] = np.nan, np.inf
    (made,) = fusion.compile(model_of(operands(rng, *sizes), sizes, [3]), threads=1)(x)
    assert np.isnan(made[:2]).all()
    assert np.isfinite(made[2]).all()


def test_what_is_around_is_in_the_same_kernel() -> None:
    rng, net = np.random.default_rng(5), Network()
    given = operands(rng, 64, 64, 32)
    x = net.input([4, 64])
    named: dict[str, Any] = {"K": 64, "N": 64, "bits": 4, "block_size": 32, "domain": "com.microsoft"}
    y = net.op("MatMulNBits", x, *map(net.constant, given.values()), **named)
    model = net.model(net.op("Add", net.op("Sigmoid", y), x))
    module = fusion.compile(model, threads=1)
    (form,) = module.specializations
    assert len(form.kernels) == 1
    values = rng.normal(size=(4, 64)).astype("float32")
    expected = 1 / (1 + np.exp(-exact(given, (64, 64, 32), values))) + values
    np.testing.assert_allclose(module(values)[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["8 bits", "groups", "computed"])
def test_others_are_left_to_onnx_runtime(kind: str) -> None:
    rng, sizes = np.random.default_rng(6), (64, 32, 32)
    given = operands(rng, *sizes)
    if kind == "8 bits":
        given["weights"] = rng.integers(0, 256, (32, 2, 32), dtype=np.uint8)
    model = model_of(given, sizes, [2], bits=8 if kind == "8 bits" else 4)
    if kind == "groups":
        model.graph.initializer.append(numpy_helper.from_array(np.arange(64, dtype="int32") // 32, "groups"))
        model.graph.node[0].input.extend(["groups"])
    if kind == "computed":
        model.graph.initializer.pop(1)
        model.graph.input.append(helper.make_tensor_value_info("scales", TensorProto.FLOAT, [64]))
    inputs = {"x": rng.normal(size=(2, 64)).astype("float32"), "scales": given["scales"]}
    inputs = {value.name: inputs[value.name] for value in model.graph.input}
    module = fusion.compile(model, threads=1)
    assert not is_here(module)
    np.testing.assert_allclose(module(*inputs.values())[0], onnxruntime_runs(model, inputs)[0], rtol=1e-5, atol=1e-5)


def test_backends_without_our_kernels_leave_it_to_onnx_runtime() -> None:
    rng, sizes = np.random.default_rng(9), (64, 32, 32)
    given, x = operands(rng, *sizes), rng.normal(size=(2, 64)).astype("float32")
    module = fusion.compile(model_of(given, sizes, [2]), threads=1, backends=["onnxruntime"])
    assert not is_here(module)
    np.testing.assert_allclose(module(x)[0], exact(given, sizes, x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("bits", "dtype"), [(4, "float32"), (4, "float16"), (8, "float32")])
def test_sums_of_nothing_are_zero(bits: int, dtype: str) -> None:
    """ONNX Runtime leaves what was in the memory, which differs from run to run."""
    rng, sizes = np.random.default_rng(8), (0, 32, 32)
    given, bias = operands(rng, *sizes, dtype=dtype), rng.normal(size=32).astype(dtype)
    given["weights"] = np.zeros((32, 0, bits * 4), np.uint8)
    for added in (None, bias):
        model, x = model_of(given, sizes, [3], dtype, bias=added, bits=bits), np.zeros((3, 0), dtype)
        module = fusion.compile(model, threads=1)
        assert is_here(module)
        made, theirs = module(x)[0], onnxruntime_runs(model, {"x": x})[0]
        assert (made.shape, made.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_array_equal(made, np.zeros((3, 32), dtype) if added is None else theirs)


@pytest.mark.parametrize("depth", [0, 64])
def test_less_than_no_channels_are_refused(depth: int) -> None:
    given = operands(np.random.default_rng(0), 64, 32, 32)
    with pytest.raises(UnsupportedOperatorError, match=f"weights \\[{depth}, -1\\]"):
        fusion.compile(model_of(given, (depth, -1, 32), [2]))
