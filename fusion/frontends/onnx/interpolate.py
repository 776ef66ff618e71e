"""Taps of a one-dimensional resize as the ONNX standard defines them: for each output position, indices and weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Axis:
    """One axis of a Resize: sizes, scale, and the region of interest in shares of the axis."""

    source: int
    target: int
    scale: float
    start: float
    end: float


@dataclass(frozen=True)
class Taps:
    """indices (int64) and weights (float64), both [target, taps]; outside marks positions that take the fill value."""

    indices: np.ndarray
    weights: np.ndarray
    outside: np.ndarray | None


def taps_of(
    axis: Axis, mode: str, transform: str, rounding: str, antialias: bool, exclude_outside: bool, cubic_a: float
) -> Taps:
    """Return the taps of `axis`; the argument names are those of ONNX's Resize."""
    position = source_positions(axis, transform)
    outside = (position < 0) | (position > axis.source - 1) if transform == "tf_crop_and_resize" else None
    if mode == "nearest":
        nearest = _round(position, rounding).astype("int64").clip(0, axis.source - 1)
        return Taps(nearest[:, None], np.ones((axis.target, 1)), outside)
    cubic = mode == "cubic"
    stretch = max(1.0, 1.0 / axis.scale) if antialias else 1.0
    reach = int(np.ceil((2 if cubic else 1) * stretch))
    base = np.floor(position).astype("int64")
    indices = base[:, None] + np.arange(-reach + 1, reach + 1)[None, :]
    distance = np.abs(position[:, None] - indices) / stretch
    weights = _cubic(distance, cubic_a) if cubic else np.maximum(1.0 - distance, 0.0)
    if exclude_outside:
        weights = np.where((indices < 0) | (indices >= axis.source), 0.0, weights)
    if exclude_outside or antialias:
        weights = weights / weights.sum(axis=1, keepdims=True)
    used = np.any(weights != 0.0, axis=0)
    return Taps(indices.clip(0, axis.source - 1)[:, used], weights[:, used], outside)


def source_positions(axis: Axis, transform: str) -> np.ndarray:
    """Return where each output position lies on the input axis."""
    x, scale = np.arange(axis.target, dtype="float64"), axis.scale
    length = scale * axis.source
    if transform == "align_corners":
        return np.zeros_like(x) if length == 1 else x * (axis.source - 1) / (length - 1)
    if transform == "asymmetric":
        return x / scale
    if transform == "pytorch_half_pixel":
        return (x + 0.5) / scale - 0.5 if length > 1 else np.full_like(x, -0.5)
    if transform == "half_pixel_symmetric":
        center = axis.source / 2
        return center * (1 - axis.target / length) + (x + 0.5) / scale - 0.5
    if transform == "tf_crop_and_resize":
        if axis.target == 1:
            return np.full_like(x, 0.5 * (axis.start + axis.end) * (axis.source - 1))
        step = (axis.end - axis.start) * (axis.source - 1) / (length - 1)
        return axis.start * (axis.source - 1) + x * step
    return (x + 0.5) / scale - 0.5


def _round(position: np.ndarray, rounding: str) -> np.ndarray:
    if rounding == "floor":
        rounded = np.floor(position)
    elif rounding == "ceil":
        rounded = np.ceil(position)
    else:
        rounded = np.ceil(position - 0.5) if rounding == "round_prefer_floor" else np.floor(position + 0.5)
    return np.asarray(rounded)


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    """Keys' cubic convolution kernel ("Cubic convolution interpolation for digital image processing", 1981)."""
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))
