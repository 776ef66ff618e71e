"""Fourier transforms, as products with the matrices that define them."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax
from tvm.relax import Expr

from fusion.constants import constant
from fusion.declined import Declined
from fusion.frontends.relay.call import Call
from fusion.frontends.relay.ops.dtypes import is_float
from fusion.frontends.relay.registry import translates


@translates("dft")
def dft(call: Call) -> list[Expr]:
    """The real and the imaginary part of the transform, along the last axis, of a real and an imaginary part."""
    _need_float(call)
    size = call.shape(0)[-1]
    call.require_room(size, size)
    turn = 2j * np.pi if call.flag("inverse", False) else -2j * np.pi
    waves = np.exp(turn * np.outer(np.arange(size), np.arange(size)) / size)
    real, imaginary = _halves(call, waves / size if call.flag("inverse", False) else waves)
    x, y = call.x(0), call.x(1)
    return [
        relax.op.subtract(relax.op.matmul(x, real), relax.op.matmul(y, imaginary)),
        relax.op.add(relax.op.matmul(x, imaginary), relax.op.matmul(y, real)),
    ]


@translates("stft")
def stft(call: Call) -> Expr:
    """The transform of overlapping frames of [N] or [batch, N]: [batch, frequencies, frames, 2].

    As in Relay a window that is shorter than `n_fft` is not padded: its own length is the period of the waves.
    """
    _need_float(call)
    *batch, length = call.shape(0)
    points = call.integer("n_fft", -1)
    hop = _or_default(call.integer("hop_length", -1), points // 4)
    window = _or_default(call.integer("win_length", -1), points)
    if not 0 < points <= length or hop < 1 or call.shape(1) != (window,) or window > points:
        raise Declined(f"n_fft {points}, hop_length {hop} and win_length {window} of {length} samples")
    frequencies = points // 2 + 1 if call.flag("onesided", True) else points
    call.require_room(window, max(frequencies, (length - points) // hop + 1))
    waves = np.exp(-2j * np.pi * np.outer(np.arange(window), np.arange(frequencies)) / window)
    scale = math.sqrt(points) if call.flag("normalized", False) else 1.0
    starts = np.arange(0, length - points + 1, hop)
    frames = call.emit(relax.op.take(call.x(0), constant(starts[:, None] + np.arange(window)[None]), len(batch)))
    weighed = call.emit(relax.op.multiply(frames, call.x(1)))
    rank = len(batch) + 2
    parts = [call.emit(relax.op.matmul(weighed, half)) for half in _halves(call, waves / scale)]
    columns = [call.emit(relax.op.expand_dims(part, rank)) for part in parts]
    both = call.emit(relax.op.concat(columns, rank))
    return relax.op.permute_dims(both, [*range(rank - 2), rank - 1, rank - 2, rank])


def _halves(call: Call, waves: np.ndarray) -> tuple[Expr, Expr]:
    dtype = call.dtype(0)
    return constant(np.ascontiguousarray(waves.real.astype(dtype))), constant(
        np.ascontiguousarray(waves.imag.astype(dtype))
    )


def _or_default(given: int, default: int) -> int:
    return default if given < 0 else given


def _need_float(call: Call) -> None:
    if not is_float(call.dtype(0)) or call.dtype(0) != call.dtype(1):
        raise Declined(f"{call.operator} of {call.dtype(0)} and {call.dtype(1)}")
