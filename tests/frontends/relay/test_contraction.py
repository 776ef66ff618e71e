"""einsum and Fourier transforms against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontends.relay.operators import Case, check, refused

_RANDOM = np.random.default_rng(19)


def _x(*shape: int) -> np.ndarray:
    return _RANDOM.standard_normal(shape).astype("float32")


# Sizes of the axes: a 2, b 3, c 4, d 5, e 6.
_SIZES = dict(zip("abcde", range(2, 7), strict=True))
_EQUATIONS = [
    "ab,bc->ac", "abc,acd->abd", "abcd,abed->abce", "abd,cd->acb", "ab,cd->dabc", "abc,abc->", "abc,bc->ab",
    "abc->cb", "ab,bc,cd->ad", "ab,ab->ab", "abc,ad->bcd",
]  # fmt: skip


def test_einsum() -> None:
    cases = []
    for equation in _EQUATIONS:
        operands = tuple(_x(*(_SIZES[name] for name in names)) for names in equation.split("->")[0].split(","))
        want = np.asarray(np.einsum(equation, *operands), "float32")
        cases.append(Case("einsum", [operands], want, {"equation": equation.replace(",", ", ")}, tolerance=1e-5))
    check(cases)


@pytest.mark.parametrize("inverse", [False, True])
def test_dft(inverse: bool) -> None:
    real, imaginary = _x(2, 3, 10), _x(2, 3, 10)
    want = (np.fft.ifft if inverse else np.fft.fft)(real + 1j * imaginary)
    halves = [want.real.astype("float32"), want.imag.astype("float32")]
    check([Case("dft", [real, imaginary], halves, {"inverse": inverse}, tolerance=1e-5)])


def test_stft() -> None:
    x, window = _x(2, 20), _x(8)
    frames = np.lib.stride_tricks.sliding_window_view(x, 8, 1)[:, ::3] * window

    def wanted(transform: np.ndarray) -> np.ndarray:
        pairs = np.stack([transform.real, transform.imag], -1)
        return np.swapaxes(pairs, 1, 2).astype("float32")

    given = {"n_fft": 8, "hop_length": 3, "win_length": 8}
    quarters = np.lib.stride_tricks.sliding_window_view(x[0], 8)[::2] * window
    check([
        Case("stft", [x, window], wanted(np.fft.rfft(frames)), given, tolerance=1e-5),
        Case("stft", [x, window], wanted(np.fft.fft(frames) / np.sqrt(8)),
             {**given, "normalized": True, "onesided": False}, tolerance=1e-5),
        Case("stft", [x[0], window], wanted(np.fft.rfft(quarters)[None])[0], {"n_fft": 8}, tolerance=1e-5),
    ])


def test_wrong_operands_are_refused() -> None:
    refused("einsum", (_x(2), np.arange(2)), equation="a,a->a")
    refused("dft", _x(4), np.arange(4))
    refused("stft", _x(6), _x(8), n_fft=8, hop_length=2, win_length=8)
    refused("stft", _x(16), _x(4), n_fft=8, hop_length=2, win_length=8)
