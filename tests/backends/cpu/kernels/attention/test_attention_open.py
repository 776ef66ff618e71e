"""Attention of which only a call knows the batch and the lengths, against float64 NumPy and against the kernels that
know them, at sizes 0 and 1 and with every kind of edge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from tvm import relax, tirx
from tvm.ir import GenericConst

from backends.cpu.kernels.attention import open_plan
from backends.cpu.schedule import schedule
from backends.tensorir.symbols import bind
from fusion import context
from fusion.bindings import all_bindings, call_arguments, callee, is_call_tir
from fusion.symbolic.fit import Fit
from tests.backends.cpu.kernels.anchored import always, grouped, one_kernel
from tests.backends.cpu.kernels.attention.test_attention import Attention
from tests.backends.cpu.kernels.attention.test_attention_online import guarded, guarded_exactly
from tests.backends.cpu.kernels.called import Called
from tests.symbolic.unified import unified
from tests.targets import AVX2, runs_here

PROBES = ({"b": 11, "n": 127}, {"b": 11, "n": 131}, {"b": 13, "n": 131})
SIZES = [(1, 1), (2, 2), (1, 7), (2, 15), (1, 16), (3, 17), (1, 33), (2, 40), (1, 101), (0, 3), (2, 0), (1, 531)]
HEADS = ((0, 2, 1, 3), (0, 3, 1, 2), (0, 2, 1, 3))
TURNED = ((0, 1, 2, 3), (0, 1, 3, 2), (0, 1, 3, 2))
FAR = ((0, 1, 2, 3), (2, 3, 0, 1), (2, 3, 0, 1))

CASES: dict[str, Callable[[int, int], Attention]] = {
    "a mask per row": lambda b, n: Attention((b, 3), n, 16, n, 32, ("div", "hide"), (b, 1, n, n)),
    "heads cut from rows": lambda b, n: Attention((b, 2), n, 64, n, 64, orders=HEADS),
    "keys and values turned": lambda b, n: Attention((b, 2), n, 20, n, 18, orders=TURNED),
    "nothing is contiguous": lambda b, n: Attention((b, 2), n, 8, n, 5, orders=FAR),
    "more keys than rows": lambda b, n: Attention((b,), n, 24, n + 3, 40, ("tanh", "mask"), (n, n + 3)),
    "one row": lambda b, n: Attention((b, 2), 1, 16, n, 15, ("mask",), (b, 1, 1, n)),
    "five keys": lambda b, n: Attention((b,), n, 33, 5, 48),
    "a symbol behind the heads": lambda b, n: Attention((3, b), n, 8, n, 16, ("mask",), (3, b, n, n)),
    "products alone": lambda b, n: Attention((b, 2), n, 16, n, 24, ("tanh",), softmax=False),
    "work behind": lambda b, n: Attention((b, 2), n, 16, n, 24, behind=("scale", "residual", "sigmoid"), seed=3),
}  # fmt: skip


def symbolic(attention: Callable[[int, int], Attention]) -> tuple[tirx.PrimFunc, list[int | np.ndarray]]:
    """Return the kernel with symbols, and what it is called with; transposes of operands are part of it."""
    built, read = [], []
    for sizes in PROBES:
        at = attention(**sizes)
        if at.orders:
            built.append(one_kernel(at.relax, at.arrays()))
            read = [*range(len(at.arrays()))]
            continue
        mod = grouped(at.relax, at.arrays(), always)
        (call,) = [each.value for each in all_bindings(mod["main"].body) if is_call_tir(each.value)]
        names = [str(param.name) for param in mod["main"].params]
        read = [
            each.value.numpy() if isinstance(each, GenericConst) else names.index(each.name)
            for each in call_arguments(call)
        ]
        built.append(mod[callee(call)])
    return unified(built, Fit(PROBES)), read


@cache
def called(name: str, target: str = "llvm", threads: int = 1) -> Called:
    return Called(*symbolic(CASES[name]), target, threads)


def check(name: str, kernel: Called, b: int, n: int) -> None:
    attention = CASES[name](b, n)
    (want,) = attention.numpy() if attention.keys else [_without_keys(attention)]
    made = kernel(attention.arrays(), want.shape)
    largest = max(1, np.abs(want).max(initial=0))
    np.testing.assert_allclose(made, want, rtol=2e-5, atol=2e-5 * largest, err_msg=f"{b=} {n=}")


def _without_keys(attention: Attention) -> np.ndarray:
    (want,) = attention.epilogue.numpy(np.zeros((*attention.batch, attention.rows, attention.channels)))
    return want


@pytest.mark.parametrize("name", CASES)
def test_kernels_are_right_at_all_sizes(name: str) -> None:
    kernel = called(name)
    assert kernel.made.template == "attention"
    for b, n in SIZES:
        check(name, kernel, b, n)


@pytest.mark.skipif(not runs_here(AVX2), reason="the CPU has no such vectors")
@pytest.mark.parametrize("name", ["a mask per row", "keys and values turned", "work behind"])
def test_narrower_vectors_and_threads(name: str) -> None:
    kernel = called(name, AVX2, 3)
    assert "T.parallel" in kernel.made.func.script()
    for b, n in SIZES:
        check(name, kernel, b, n)


def _masks(n: int) -> dict[str, np.ndarray]:
    later = np.arange(n) > np.arange(n)[:, None]
    none = np.zeros((n, n), "float32")
    masks = {
        "causal": np.where(later, -np.inf, none),
        "causal by large numbers": np.where(later, np.float32(-3.4e38), none),
        "every key of a row": np.where(np.arange(n)[:, None] == 3, -np.inf, none),
        "every key": none - np.inf,
        "the first keys": np.where(np.arange(n) < n - 2, -np.inf, none),
        "scores that grow": none + np.linspace(-400, 400, n),
        "a NaN in the first key": np.where((np.arange(n) == 0) & (np.arange(n)[:, None] == 5), np.nan, none),
        "a NaN in the last key": np.where((np.arange(n) == n - 1) & (np.arange(n)[:, None] == 5), np.nan, none),
        "an infinity": np.where((np.arange(n) == 2) & (np.arange(n)[:, None] == 5), np.inf, none),
    }
    return {name: np.ascontiguousarray(mask[None, None], "float32") for name, mask in masks.items()}


@pytest.mark.parametrize("n", [11, 40, 600])
def test_masks_and_errors_are_those_of_the_static_kernel(n: int) -> None:
    name = "a mask per row"
    func, read = symbolic(CASES[name])
    static, open_ = Called(bind(func, {"b": 1, "n": n}), read), called(name)
    attention = CASES[name](1, n)
    for kind, mask in _masks(n).items():
        arrays = [*attention.arrays()[:3], mask]
        want, made = (kernel(arrays, (1, 3, n, 32)) for kernel in (static, open_))
        np.testing.assert_array_equal(np.isnan(made), np.isnan(want), err_msg=kind)
        np.testing.assert_allclose(made, want, rtol=1e-5, atol=1e-5, err_msg=kind)
    (exact,) = attention.numpy()
    errors = [np.abs(kernel(attention.arrays(), exact.shape) - exact).max() for kernel in (static, open_)]
    assert errors[1] <= 2 * errors[0] + 1e-7


@dataclass(frozen=True)
class Guarded(Attention):
    """Weights that are NaN are zeros."""

    def relax(self, b: relax.BlockBuilder, q: relax.Var, k: relax.Var, v: relax.Var, *extra: relax.Var) -> relax.Expr:
        return guarded(b, q, k, v, *extra)


def test_weights_that_are_nan_are_zeros_where_the_graph_says_so() -> None:
    func, read = symbolic(lambda b, n: Guarded((b, 3), n, 16, n, 32, ("mask",), (b, 1, n, n)))
    kernel = Called(func, read)
    assert kernel.made.template == "attention"
    attention = Guarded((1, 3), 40, 16, 40, 32, ("mask",), (1, 1, 40, 40))
    for kind, mask in _masks(40).items():
        arrays = [*attention.arrays()[:3], mask]
        (want,) = guarded_exactly(*arrays)
        np.testing.assert_allclose(kernel(arrays, want.shape), want, rtol=2e-5, atol=2e-5, err_msg=kind)


def test_weights_that_are_subnormal_are_zero() -> None:
    q, k, v = (np.zeros_like(array) for array in CASES["a mask per row"](1, 40).arrays()[:3])
    mask = np.full((1, 1, 40, 40), -100, "float32")
    v[:], v[:, :, 7], mask[..., 7] = 1e36, 0, 0
    np.testing.assert_array_equal(called("a mask per row")([q, k, v, mask], (1, 3, 40, 32)), 0)


def test_keys_in_several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_plan, "_KEYS", 32)
    name = "more keys than rows"
    kernel = Called(*symbolic(CASES[name]))
    assert "by 32 keys" in kernel.made.tile
    for b, n in SIZES:
        check(name, kernel, b, n)


def test_lengths_that_are_numbers_leave_it_to_the_static_kernel_of_one_batch() -> None:
    func, _ = symbolic(lambda b, n: Attention((b, 2), 20, 16, 20, 24))
    made = schedule(func, context.resolve("llvm").compiler.machine, 1)
    assert made.tile.endswith("for each of b")


def test_channels_that_only_a_call_knows_decline() -> None:
    func, _ = symbolic(lambda b, n: Attention((b, 2), 20, n, 20, 24))
    made = schedule(func, context.resolve("llvm").compiler.machine, 1)
    assert "only a call knows the channels of a head" in made.note
