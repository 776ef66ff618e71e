"""Accuracy of the polynomial math over all float32 exponents, and that the code has no scalar calls left."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from backends.cpu.vector_math import VectorizeMath
from backends.tensorir.intrinsics import GELU, SOFTMAX_WEIGHT
from fusion import context
from fusion.structural import contains

SIZE = 1 << 16
erf64 = np.vectorize(math.erf, otypes=[float])
erfc64 = np.vectorize(math.erfc, otypes=[float])


def logistic64(x: np.ndarray) -> np.ndarray:
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))))


def gelu(x: Any) -> Any:
    return tirx.call_intrin("float32", GELU, x)


def gelu64(x: np.ndarray) -> np.ndarray:
    return np.where(x == -np.inf, 0, x * 0.5 * erfc64(-x * math.sqrt(0.5)))


def softmax_weight(x: Any) -> Any:
    return tirx.call_intrin("float32", SOFTMAX_WEIGHT, tirx.min(tirx.const(0.0, "float32"), x))


def exp_of_negative64(x: np.ndarray) -> np.ndarray:
    return np.exp(np.where(x > 0, 0, x))


# name -> (TIR call, float64 reference, ulp, absolute error allowed instead)
FUNCTIONS: dict[str, tuple[Callable, Callable, float, float]] = {
    "exp": (tirx.exp, np.exp, 2, 0),
    "softmax_weight": (softmax_weight, exp_of_negative64, 2, 1e-16),
    "exp2": (tirx.exp2, np.exp2, 2, 0),
    "tanh": (tirx.tanh, np.tanh, 2, 0),
    "erf": (tirx.erf, erf64, 2, 0),
    "gelu": (gelu, gelu64, 2, 1e-7),
    "sigmoid": (tirx.sigmoid, logistic64, 4, 1e-37),
    "log": (tirx.log, np.log, 1, 0),
    "log2": (tirx.log2, np.log2, 3, 0),
    "log10": (tirx.log10, np.log10, 3, 0),
    "log1p": (tirx.log1p, np.log1p, 4, 0),
    "sin": (tirx.sin, np.sin, 2, 1e-7),
    "cos": (tirx.cos, np.cos, 2, 1e-7),
    "atan": (tirx.atan, np.arctan, 2, 0),
    "asin": (tirx.asin, np.arcsin, 3, 0),
    "acos": (tirx.acos, np.arccos, 3, 0),
}


def scheduled(call: Callable, dtype: str = "float32", has_scalef: bool = False) -> tirx.PrimFunc:
    """Return y = call(x) on vectors, rewritten."""
    x = te.placeholder((SIZE,), dtype, "x")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([x, te.compute((SIZE,), lambda i: call(x[i]), "y")]))
    (loop,) = schedule.get_loops(schedule.get_sblock("y"))
    schedule.vectorize(schedule.split(loop, [None, 16])[1])
    return VectorizeMath(has_scalef)(schedule.mod["main"])


def build(
    call: Callable, dtype: str = "float32", target: object = None, has_scalef: bool = False
) -> tvm.runtime.Executable:
    func = scheduled(call, dtype, has_scalef).with_attr("global_symbol", "k")
    return tvm.compile(tvm.IRModule({"k": func}), target=target or context.resolve().target)


def run(library: tvm.runtime.Executable, x: np.ndarray) -> np.ndarray:
    out = tvm.runtime.tensor(np.empty_like(x))
    library["k"](tvm.runtime.tensor(x), out)
    return out.numpy()


def points() -> np.ndarray:
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, 1e-45, -1e-45, 3e38, -3e38], "float32")
    rng = np.random.default_rng(0)
    all_exponents = np.linspace(0, 2**32 - 1, SIZE // 2).astype("uint32").view("float32")
    rest = SIZE - len(all_exponents) - len(special)
    near = rng.uniform(-110, 110, rest // 2), rng.normal(0, 2, rest - rest // 2)
    return np.concatenate([all_exponents, special, *near]).astype("float32")


def errors(got: np.ndarray, expected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the error in ulp of the expected value, and the absolute error; 0 where both are NaN or equal."""
    rounded = expected.astype("float32")
    same = (got == rounded) | (np.isnan(got) & np.isnan(expected))
    absolute = np.where(same, 0, np.abs(got.astype("float64") - expected))
    ulp = absolute / np.spacing(np.minimum(np.abs(rounded), np.float32(3e38)))
    return np.nan_to_num(ulp, nan=np.inf), np.nan_to_num(absolute, nan=np.inf)


@pytest.mark.parametrize("has_scalef", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_error_bound_over_the_whole_range(name: str, has_scalef: bool) -> None:
    call, reference, ulp_allowed, absolute_allowed = FUNCTIONS[name]
    x = points()
    if name in ("sin", "cos"):
        x = np.where(np.abs(x) <= 2**30, x, np.float32(1))
    ulp, absolute = errors(run(build(call, has_scalef=has_scalef), x), reference(x.astype("float64")))
    bad = (ulp > ulp_allowed) & (absolute > absolute_allowed)
    assert not bad.any(), f"{name} at {x[bad][:3]}: {ulp[bad][:3]} ulp"


@pytest.mark.parametrize("name", ["exp", "softmax_weight", "tanh", "erf", "gelu", "log", "atan", "asin", "acos"])
@pytest.mark.parametrize("target", ["llvm -mcpu=haswell", "llvm -mcpu=skylake-avx512"])
def test_the_vectorised_loop_has_no_scalar_calls(name: str, target: str) -> None:
    library = build(FUNCTIONS[name][0], target=context.resolve(target).target, has_scalef="avx512" in target)
    assert not re.search(rf"({name}|ldexp)f?@", library.mod.inspect_source("asm"))


# name -> shifts of integers to scale one vector by powers of two
SHIFTS = {"exp": 1, "softmax_weight": 1, "exp2": 1, "tanh": 0, "erf": 0}


@pytest.mark.parametrize("name", SHIFTS)
def test_without_scalef_at_most_one_factor_is_made_of_bits(name: str) -> None:
    library = build(FUNCTIONS[name][0], target=context.resolve("llvm -mcpu=haswell").target)
    assembly = library.mod.inspect_source("asm")
    vectors = len(re.findall(r"vmovu?a?ps\s+%ymm\d+, \d*\(%rsi,", assembly))
    assert vectors
    assert len(re.findall(r"\bvpslld\b", assembly)) == SHIFTS[name] * vectors


@pytest.mark.parametrize("has_scalef", [False, True])
@pytest.mark.parametrize("name", ["tanh", "erf"])
def test_error_bound_where_the_pieces_meet(name: str, has_scalef: bool) -> None:
    call, reference, ulp_allowed, _ = FUNCTIONS[name]
    x = np.linspace(0.5, 1.2, SIZE, dtype="float32")
    ulp, _ = errors(run(build(call, has_scalef=has_scalef), x), reference(x.astype("float64")))
    assert ulp.max() <= ulp_allowed


@pytest.mark.parametrize("name", ["atan", "asin", "acos"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_error_bound_of_arc_functions_where_they_are_defined(name: str) -> None:
    call, reference, ulp_allowed, _ = FUNCTIONS[name]
    x = np.concatenate([np.linspace(-1.001, 1.001, SIZE // 2), np.linspace(-9, 9, SIZE // 2)]).astype("float32")
    got, expected = run(build(call), x), reference(x.astype("float64"))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    assert errors(got, expected)[0][np.isfinite(expected)].max() <= ulp_allowed


@pytest.mark.parametrize("has_scalef", [False, True])
@pytest.mark.parametrize("name", ["tanh", "erf"])
def test_ends_zeros_and_denormals_are_exact(name: str, has_scalef: bool) -> None:
    x = np.resize(np.array([0.0, -0.0, 1e-45, -3e-39, 10, -10, 80, 3e3, 3e38, -3e38, np.inf, -np.inf], "float32"), SIZE)
    expected = FUNCTIONS[name][1](x.astype("float64")).astype("float32")
    got = run(build(FUNCTIONS[name][0], has_scalef=has_scalef), x)
    np.testing.assert_array_equal(got, expected)
    if not has_scalef:
        np.testing.assert_array_equal(np.signbit(got), np.signbit(x))


@pytest.mark.parametrize("has_scalef", [False, True])
def test_exp_from_the_least_normal_result_to_nothing(has_scalef: bool) -> None:
    """Denormal results, 0 and what the argument is limited to."""
    x = np.linspace(-180, -86, SIZE, dtype="float32")
    ulp, _ = errors(run(build(tirx.exp, has_scalef=has_scalef), x), np.exp(x.astype("float64")))
    assert ulp.max() <= 2


@pytest.mark.parametrize("has_scalef", [False, True])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_weights_of_a_softmax_are_as_exact_as_their_distances(has_scalef: bool) -> None:
    """2 ulp and a tenth of what half an ulp of the distance makes; 0 or a normal number at the end."""
    x = np.concatenate([np.linspace(-90, 0, SIZE // 2), -np.logspace(-20, 38, SIZE // 2)]).astype("float32")
    got = run(build(FUNCTIONS["softmax_weight"][0], has_scalef=has_scalef), x)
    ulp, _ = errors(got, exp_of_negative64(x.astype("float64")))
    assert (ulp <= 2 + 0.1 * np.abs(x) / 2)[x > -86.98].all()
    assert ((got == 0) | (got >= np.finfo("float32").tiny)).all()
    assert (got[x < -87.34] == 0).all()


@pytest.mark.parametrize("has_scalef", [False, True])
def test_weights_of_a_softmax_keep_nan_of_any_bits(has_scalef: bool) -> None:
    x = np.resize(np.array([0x7FFFFFFF, 0xFFC00001, 0x7FC00000, 0x7F80FFFF], "uint32"), SIZE).view("float32")
    call = partial(tirx.call_intrin, "float32", SOFTMAX_WEIGHT)
    assert np.isnan(run(build(call, has_scalef=has_scalef), x)).all()


@pytest.mark.parametrize("name", ["exp", "tanh", "erf"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_error_bound_in_a_branch(name: str) -> None:
    """Intermediate values are variables there, which TVM's simplifier replaces by their values."""
    call, reference, ulp_allowed, _ = FUNCTIONS[name]
    x = points()
    library = build(lambda v: tirx.if_then_else(v == v, call(v), tirx.const(7, "float32")))
    ulp, _ = errors(run(library, x), reference(x.astype("float64")))
    assert ulp[np.isfinite(x)].max() <= ulp_allowed


def test_float64_is_left_alone() -> None:
    assert "exp@" in build(tirx.exp, "float64").mod.inspect_source("asm")


@pytest.mark.parametrize("exponent", [-2.0, -1.25, -1.0, -0.75, -0.5, 0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 6.75, 7.0])
def test_constant_powers_become_products(exponent: float) -> None:
    library = build(lambda v: tirx.pow(v, tirx.const(exponent, "float32")))
    assert "powf@" not in library.mod.inspect_source("asm")
    x = np.random.default_rng(1).uniform(0.1, 4, SIZE).astype("float32")
    np.testing.assert_allclose(run(library, x), x.astype("float64") ** exponent, rtol=1e-6)


@pytest.mark.parametrize(
    ("exponent", "ulp_allowed"), [(0.25, 1), (0.5, 1), (0.75, 2.5), (1.75, 3), (-0.25, 2), (-0.75, 4)]
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_roots_over_the_whole_range(exponent: float, ulp_allowed: float) -> None:
    x = points()
    library = build(lambda v: tirx.pow(v, tirx.const(exponent, "float32")))
    expected = x.astype("float64") ** exponent
    expected[np.isneginf(x)] = math.inf if exponent > 0 else 0  # NumPy's power by 1/2 is sqrt, NaN there
    ulp, absolute = errors(run(library, x), expected)
    bad = (ulp > ulp_allowed) & (absolute > 0)
    assert not bad.any(), f"{x[bad][:3]}: {ulp[bad][:3]} ulp"


@pytest.mark.parametrize("target", ["llvm -mcpu=haswell", "llvm -mcpu=skylake-avx512"])
def test_other_powers_are_no_calls_either(target: str) -> None:
    library = build(lambda v: tirx.pow(v, v), target=context.resolve(target).target)
    assert not re.search(r"(pow|floor|ldexp)f?@", library.mod.inspect_source("asm"))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_powers_over_the_whole_range() -> None:
    """Of all numbers by some, and of some by all numbers."""
    x, y = (te.placeholder((SIZE,), "float32", name) for name in "xy")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([x, y, te.compute((SIZE,), lambda i: tirx.pow(x[i], y[i]), "z")]))
    (loop,) = schedule.get_loops(schedule.get_sblock("z"))
    schedule.vectorize(schedule.split(loop, [None, 16])[1])
    func = VectorizeMath(False)(schedule.mod["main"]).with_attr("global_symbol", "k")
    power = tvm.compile(tvm.IRModule({"k": func}), target=context.resolve().target)["k"]
    some = (0.75, 2.3, -1 / 3, 9, -11, 0, -0.0, 1, -1, 1.0001, 1e-42, math.inf, -math.inf, math.nan)
    for other in some:
        for pair in ((points(), np.full(SIZE, other, "float32")), (np.full(SIZE, other, "float32"), points())):
            out = tvm.runtime.tensor(np.empty(SIZE, "float32"))
            power(*(tvm.runtime.tensor(operand) for operand in pair), out)
            ulp, absolute = errors(out.numpy(), np.power(*(operand.astype("float64") for operand in pair)))
            bad = (ulp > 1) & (absolute > 0)
            assert not bad.any(), f"{pair[0][bad][:3]} by {pair[1][bad][:3]}: {ulp[bad][:3]} ulp"


@pytest.mark.parametrize("exponent", [math.inf, -math.inf, math.nan])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_constant_powers_that_are_no_numbers(exponent: float) -> None:
    x = np.array([0.5, 2, 1, -1, 0, -3], "float32").repeat(SIZE // 6 + 1)[:SIZE]
    found = run(build(lambda v: tirx.pow(v, tirx.const(exponent, "float32"))), x)
    np.testing.assert_array_equal(found, np.power(x, np.float32(exponent)))


def test_twice_is_the_same_as_once() -> None:
    x = te.placeholder((16,), "float32", "x")
    func = te.create_prim_func([x, te.compute((16,), lambda i: tirx.erf(x[i]), "y")])
    once = VectorizeMath(False)(func)
    tvm.ir.assert_structural_equal(VectorizeMath(False)(once), once)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_rounding_keeps_its_vectors(dtype: str) -> None:
    """TVM's `nearbyint` made loops over the lanes of all that it is computed with: quantisations took three times as
    long."""
    body = scheduled(tirx.nearbyint, dtype).body
    assert contains(body, (tirx.For, lambda loop: loop.kind == tirx.ForKind.VECTORIZED))
    x = np.concatenate([points(), np.arange(-64, 64, 0.5)])[-SIZE:].astype(dtype)
    got = run(build(tirx.nearbyint, dtype), x)
    np.testing.assert_array_equal(got, np.rint(x))
    np.testing.assert_array_equal(np.signbit(got[~np.isnan(x)]), np.signbit(x[~np.isnan(x)]))
