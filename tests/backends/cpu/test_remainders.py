"""Remainders of float32 are exact for all numbers, and no calls of libm."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from backends.cpu.vector_math import VectorizeMath
from fusion import context

SIZE = 1 << 18
SPECIAL = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 3.4e38, 1e-45, -1e-45, 1.2e-38, 2.0**24, 0.1], "float32")


def _build(divisor: float | None, target: str | None = None) -> tvm.runtime.Executable:
    operands = [te.placeholder((SIZE,), "float32", name) for name in ("x", "y")[: 1 if divisor is not None else 2]]
    known = [] if divisor is None else [tirx.const(divisor, "float32")]
    made = te.compute((SIZE,), lambda i: tirx.truncmod(*(x[i] for x in operands), *known), "z")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([*operands, made]))
    (loop,) = schedule.get_loops(schedule.get_sblock("z"))
    schedule.vectorize(schedule.split(loop, [None, 16])[1])
    func = VectorizeMath(False)(schedule.mod["main"]).with_attr("global_symbol", "k")
    resolved = context.resolve(target) if target else context.resolve()
    return tvm.compile(tvm.IRModule({"k": func}), target=resolved.target)


def _run(library: tvm.runtime.Executable, *arrays: np.ndarray) -> np.ndarray:
    out = tvm.runtime.tensor(np.empty_like(arrays[0]))
    library["k"](*map(tvm.runtime.tensor, arrays), out)
    return out.numpy()


def _numbers(seed: int) -> np.ndarray:
    """Return numbers of all exponents, and some that are near each other."""
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, 2**32, SIZE, dtype=np.uint32).view("float32")
    numbers[: SIZE // 4] = np.round(rng.normal(0, 20, SIZE // 4), 1)
    return numbers


def _assert_same(got: np.ndarray, expected: np.ndarray) -> None:
    """Assert that all are equal, zeros with their sign."""
    same = (got.view("uint32") == expected.view("uint32")) | (np.isnan(got) & np.isnan(expected))
    assert same.all(), (got[~same][:3], expected[~same][:3])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_of_all_numbers() -> None:
    x, y = _numbers(0), _numbers(1)
    pairs = np.array(np.meshgrid(SPECIAL, SPECIAL)).reshape(2, -1)
    x[: pairs.shape[1]], y[: pairs.shape[1]] = pairs
    multiples = slice(SIZE // 2, SIZE // 2 + SIZE // 8)
    x[multiples] = y[multiples] * np.float32(7)
    _assert_same(_run(_build(None), x, y), np.fmod(x, y))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("divisor", [0.7, -3.0, 1.0, 1e-45, 3.4e38, 0.0, float("inf"), float("nan")])
def test_by_a_constant(divisor: float) -> None:
    """Which takes no more steps than it needs."""
    x = _numbers(2)
    x[: len(SPECIAL)] = SPECIAL
    _assert_same(_run(_build(divisor), x), np.fmod(x, np.float32(divisor)))


@pytest.mark.parametrize("target", ["llvm -mcpu=haswell", "llvm -mcpu=skylake-avx512"])
def test_there_are_no_scalar_calls(target: str) -> None:
    assert not re.search(r"(fmod|fma|nearbyint|rint)f?@", _build(None, target).mod.inspect_source("asm"))
