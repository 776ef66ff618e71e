"""Decompositions of Fourier transforms of constant length into products with the matrix of the transform."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fusion.frontends.fourier_matrix import fourier_matrix
from fusion.frontends.torch.complex_numbers import parts

aten = torch.ops.aten


def _matrix(length: int, bins: int, read: int, inverse: bool, scale: float, dtype: torch.dtype) -> Tensor:
    """Return `fourier_matrix` times `scale` as [2 read, 2 bins], real parts before imaginary ones in both; it is a
    constant to the compiler."""
    matrix = fourier_matrix(length, bins, read, inverse=inverse).transpose(1, 0, 3, 2)
    return torch.from_numpy(np.ascontiguousarray(matrix.reshape(2 * read, 2 * bins) * scale)).to(dtype)


def _without_data(length: int, bins: int, read: int, inverse: bool, scale: float, dtype: torch.dtype) -> Tensor:
    return torch.empty(2 * read, 2 * bins, dtype=dtype)


transform = torch.library.custom_op("fusion::fourier_matrix", _matrix, mutates_args=())
transform.register_fake(_without_data)


def _scale(lengths: Sequence[int], normalization: int) -> float:
    """Return the factor of torch's normalisation: 0 is none, 1 by the root of all elements, 2 by their number."""
    count = math.prod(lengths)
    return (1.0, count**-0.5, 1 / count)[normalization]


_LONGEST = 2048
"""Of complex numbers its matrix has 64 MB, of real ones 16."""
_ADDED = 8
"""Up to so many overlapping frames are added in one expression."""


def _flat(z: Tensor, axis: int) -> Tensor:
    """Return complex rows along an axis, real parts before imaginary ones, along the last one."""
    return torch.cat([part.movedim(axis, -1) for part in parts(z)], -1)


def _complex(rows: Tensor, bins: int, axis: int) -> Tensor:
    """Return what `_flat` takes apart."""
    return torch.complex(*(half.movedim(-1, axis) for half in rows.split(bins, -1)))


def _r2c(x: Tensor, dim: list[int], normalization: int, onesided: bool) -> Any:
    """The last of the axes first, of which one side is enough."""
    *others, axis = dim
    length = x.shape[axis]
    bins = length // 2 + 1 if onesided else length
    if length > _LONGEST:
        return NotImplemented
    scale = _scale([x.shape[each] for each in dim], normalization)
    y = torch.matmul(x.movedim(axis, -1), transform(length, bins, length, False, scale, x.dtype)[:length])
    made = _complex(y, bins, axis).contiguous()
    return aten._fft_c2c(made, others, 0, True) if others else made


def _c2c(z: Tensor, dim: list[int], normalization: int, forward: bool) -> Any:
    lengths = [z.shape[each] for each in dim]
    if max(lengths, default=0) > _LONGEST:
        return NotImplemented
    scale = _scale(lengths, normalization)
    for axis, length in zip(dim, lengths, strict=True):
        matrix = transform(length, length, length, not forward, scale * (1 if forward else length), z.dtype.to_real())
        z, scale = _complex(torch.matmul(_flat(z, axis), matrix), length, axis), 1.0
    return z.contiguous()


def _c2r(z: Tensor, dim: list[int], normalization: int, last_dim_size: int) -> Any:
    """Of the last axis, one side is given: all but the first bin and one in the middle stand for two."""
    *others, axis = dim
    bins, length = z.shape[axis], last_dim_size
    if bins != length // 2 + 1 or length > _LONGEST:
        return NotImplemented
    scale = _scale([length, *(z.shape[each] for each in others)], normalization)
    if others:
        z = aten._fft_c2c(z, others, 0, False)
    matrix = transform(length, length, bins, True, scale * length, z.dtype.to_real())[:, :length]
    place = torch.arange(bins)
    weights = torch.where((place == 0) | (2 * place == length), 1.0, 2.0).to(matrix.dtype)
    y = torch.matmul(_flat(z, axis), matrix * weights.repeat(2)[:, None])
    return y.movedim(-1, axis).contiguous()


def _window(window: Tensor | None, win_length: int | None, n_fft: int, dtype: torch.dtype) -> Tensor:
    """Return a window as long as a frame: one that is shorter is in its middle."""
    length = win_length or n_fft
    window = torch.ones(length, dtype=dtype) if window is None else window
    before = (n_fft - length) // 2
    return window if length == n_fft else torch.nn.functional.pad(window, (before, n_fft - length - before))


def _stft(
    x: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Any:
    """A convolution with the rows of the matrix times the window.

    Its channels are as many samples as frames are whole multiples of and apart: 80 for frames of 400 by steps of 160,
    which are 5 and 2 of them.
    """
    step = hop_length or n_fft // 4
    bins = n_fft if onesided is False else n_fft // 2 + 1
    windows = _window(window, win_length, n_fft, x.dtype)
    if x.is_complex() or windows.is_complex() or not return_complex or align_to_window or n_fft > _LONGEST:
        return NotImplemented
    matrix = transform(n_fft, bins, n_fft, False, n_fft**-0.5 if normalized else 1.0, x.dtype)[:n_fft]
    channels = math.gcd(n_fft, step)
    weights = (matrix * windows[:, None]).reshape(n_fft // channels, channels, 2 * bins).permute(2, 1, 0)
    *batch, samples = x.shape
    rows = samples // channels
    frames = x[..., : rows * channels].reshape(-1, rows, channels).permute(0, 2, 1)
    y = torch.nn.functional.conv1d(frames, weights, stride=step // channels)
    return torch.complex(*(half.reshape(*batch, bins, -1) for half in y.split(bins, 1)))


def _istft(
    z: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Any:
    """Frames by the inverse transform, times the window, added where they overlap, over the sums of squared windows."""
    *batch, bins, frames = z.shape
    step = hop_length or n_fft // 4
    one_sided = bins != n_fft if onesided is None else onesided
    windows = _window(window, win_length, n_fft, z.dtype.to_real())
    if return_complex or windows.is_complex():
        return NotImplemented
    norm = 1 if normalized else 2
    spectra = z.reshape(-1, bins, frames).transpose(1, 2)
    if one_sided:
        samples = aten._fft_c2r(spectra, [2], norm, n_fft)
    else:
        samples = parts(aten._fft_c2c(spectra, [2], norm, False)).real
    start, whole = n_fft // 2 if center else 0, n_fft + step * (frames - 1)
    end = start + length if length is not None else whole - start
    sums = _overlapped(samples * windows, step)[:, start : min(end, whole)]
    weights = _overlapped((windows * windows).expand(1, frames, n_fft), step)[:, start : min(end, whole)]
    y = torch.nn.functional.pad(sums / weights, (0, max(0, end - whole)))
    return y.reshape(*batch, -1)


def _overlapped(frames: Tensor, step: int) -> Tensor:
    """Return [batch, frames, length] -> [batch, samples], the sums of frames that are `step` apart: of as many rows of
    whole steps as one frame has, each later than the one before."""
    batch, count, length = frames.shape
    steps = -(-length // step)
    steps_of = torch.nn.functional.pad(frames, (0, steps * step - length)).reshape(batch, count, steps, step)
    rows = [
        torch.nn.functional.pad(steps_of[:, :, index], (0, 0, index, steps - 1 - index)).reshape(batch, -1)
        for index in range(steps)
    ]
    return torch.stack(rows).sum(0) if len(rows) > _ADDED else sum(rows[1:], rows[0])


RULES = {
    aten._fft_r2c.default: _r2c,
    aten._fft_c2c.default: _c2c,
    aten._fft_c2r.default: _c2r,
    aten.stft.default: _stft,
    aten.istft.default: _istft,
}
