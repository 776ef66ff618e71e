"""Complex numbers and Fourier transforms of torch programs, against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fusion
from fusion.errors import UnsupportedOperatorError

torch = pytest.importorskip("torch")


def _values(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _agree(module: Any, *inputs: Any) -> Any:
    """Compare the results of a module with torch's; return the compiled one."""
    compiled = fusion.compile((module, inputs))
    with torch.no_grad():
        expected = module(*inputs)
    given = {spec.name: value.numpy() for spec, value in zip(compiled.inputs, inputs, strict=True)}
    for name, value in compiled.run(given).items():
        whole = expected[name].numpy()
        assert value.dtype == whole.dtype
        np.testing.assert_allclose(value, whole, rtol=2e-5, atol=2e-5 * np.abs(whole).max(), err_msg=name)
    return compiled


class Rotary(torch.nn.Module):  # type: ignore[misc]
    """Positions as the original Llama turns queries by them: its angles are a complex buffer."""

    def __init__(self) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(16.0), 100 ** -torch.linspace(0, 1, 4))
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles))

    def forward(self, x: Any) -> Any:
        """Return `x` [batch, length, heads, 8], turned."""
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        turns = self.turns[: x.shape[1]].view(1, x.shape[1], 1, -1)
        return {"turned": torch.view_as_real(pairs * turns).flatten(3).type_as(x)}


def test_rotary_embeddings_are_one_kernel() -> None:
    assert "1 kernel in 1 call" in _agree(Rotary(), _values(2, 12, 3, 8)).explain()


class Spectra(torch.nn.Module):  # type: ignore[misc]
    """Transforms of images and of a signal, and what is computed of them."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.complex(_values(3, 4, 5, 3), _values(3, 4, 5, 3, seed=1)))
        self.register_buffer("window", torch.hann_window(20))

    def forward(self, x: Any, signal: Any) -> Any:
        """Return results of `x` [2, 3, 6, 8] and of `signal` [2, 100]."""
        spectrum = torch.fft.rfft2(x)
        mixed = torch.zeros(2, 4, 6, 5, dtype=torch.cfloat)
        mixed[:, :, :5, :3] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, :5, :3], self.weight)
        rows = torch.fft.fftshift(torch.fft.fft(spectrum, norm="ortho")).flatten(1)
        rows = torch.cat([rows, rows.conj() * 2j + 1.5], -1) / (3 + rows.abs().sum() * 1j) - x[:, 0, :1, 0]
        options = {"n_fft": 32, "hop_length": 8, "win_length": 20, "window": self.window, "normalized": True}
        frames = torch.stft(signal, return_complex=True, **options)
        return {
            "mixed": torch.fft.irfft2(mixed, s=(6, 8)),
            "odd": torch.fft.irfft(torch.fft.rfft(x, n=9), n=9),
            "pairs": torch.view_as_real(rows),
            "back": torch.fft.ifft(rows).real,
            "grown": torch.exp(rows).imag,
            "frames": frames.abs(),
            "angles": torch.cos(torch.angle(frames)),
            "signal": torch.istft(frames, length=95, **options),
        }


def test_transforms() -> None:
    _agree(Spectra(), _values(2, 3, 6, 8), _values(2, 100, seed=2))


class _Of(torch.nn.Module):  # type: ignore[misc]
    """A function as a module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        """Return it of `x`."""
        return self.function(x)


@pytest.mark.parametrize(
    ("function", "dtype", "told"),
    [
        (torch.fft.rfft, torch.float32, "an output is complex"),
        (torch.real, torch.complex64, "the input 'x' is complex"),
        (lambda x: torch.fft.rfft(x).sin().real, torch.float32, "aten.sin"),
    ],
)
def test_what_is_refused(function: Any, dtype: Any, told: str) -> None:
    with pytest.raises(UnsupportedOperatorError, match=told):
        fusion.compile((_Of(function), (torch.ones(3, 4, dtype=dtype),)))
