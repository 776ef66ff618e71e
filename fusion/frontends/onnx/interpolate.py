"""Taps of a one-dimensional resize as the ONNX standard defines them: for each output position, indices and weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fusion.frontends.taps import Taps, keys_cubic

_HALFWAY = 1e-6
"""How far from halfway a position still counts as halfway to ONNX Runtime: found by 700 random pairs of sizes up to 400
for each transformation, of which 3e-7 and 2e-6 leave some with another neighbour."""


@dataclass(frozen=True)
class ResizeAxis:
    """One axis of a Resize: sizes, scale, and the region of interest in shares of the axis."""

    source: int
    target: int
    scale: float
    start: float
    end: float

    @property
    def has_own_scale(self) -> bool:
        """Whether the scale is what the sizes make of it; a product with it may differ from a size in the last bit."""
        return self.scale == self.target / self.source or self.scale * self.source == self.target


def taps_of(axis: ResizeAxis, mode: str, transform: str, rounding: str, exclude_outside: bool, cubic_a: float) -> Taps:
    """Return the taps of `axis`; the argument names are those of ONNX's Resize."""
    position = source_positions(axis, transform)
    outside = (position < 0) | (position > axis.source - 1) if transform == "tf_crop_and_resize" else None
    if mode == "nearest":
        nearest = _round(position, rounding, axis.scale).astype("int64").clip(0, axis.source - 1)
        return Taps(nearest[:, None], np.ones((axis.target, 1)), outside)
    cubic = mode == "cubic"
    reach = 2 if cubic else 1
    base = np.floor(position).astype("int64")
    indices = base[:, None] + np.arange(-reach + 1, reach + 1)[None, :]
    distance = np.abs(position[:, None].astype("float64") - indices)
    weights = keys_cubic(distance, cubic_a) if cubic else np.maximum(1.0 - distance, 0.0)
    if exclude_outside:
        weights = np.where((indices < 0) | (indices >= axis.source), 0.0, weights)
        weights = weights / weights.sum(axis=1, keepdims=True)
    used = np.any(weights != 0.0, axis=0)
    return Taps(indices.clip(0, axis.source - 1)[:, used], weights[:, used], outside)


def source_positions(axis: ResizeAxis, transform: str) -> np.ndarray:
    """Return where each output position lies on the input axis, in float32 and by ONNX Runtime's formulas: which of
    two neighbours is the nearest is a matter of the last bit."""
    x, scale, source, target = np.arange(axis.target, dtype="float32"), *map(np.float32, _numbers(axis))
    half, one = np.float32(0.5), np.float32(1)
    if transform == "align_corners":
        return np.zeros_like(x) if axis.target == 1 else x * (source - one) / (target - one)
    if transform == "asymmetric":
        return np.asarray(x / scale)
    if transform == "pytorch_half_pixel" and axis.target == 1:
        return np.zeros_like(x)
    if transform == "half_pixel_symmetric":
        shift = np.float64(source / np.float32(2) * (one - target / (scale * source)))
        return np.asarray(shift + (x.astype("float64") + 0.5) / np.float64(scale) - 0.5).astype("float32")
    if transform == "tf_crop_and_resize":
        start, end = np.float32(axis.start), np.float32(axis.end)
        if axis.target == 1:
            return np.full_like(x, half * (start + end) * (source - one))
        return np.asarray(start * (source - one) + x * (end - start) * (source - one) / (target - one))
    return np.asarray((x + half) / scale - half)


def _numbers(axis: ResizeAxis) -> tuple[float, int, int]:
    return axis.scale, axis.source, axis.target


def _round(position: np.ndarray, rounding: str, scale: float) -> np.ndarray:
    """Return the nearest neighbour; "simple", before opset 11, is the one before it, or after it where few are kept."""
    position = position.astype("float64")
    if rounding == "floor" or (rounding == "simple" and scale >= 1):
        rounded = np.floor(position)
    elif rounding in ("ceil", "simple"):
        rounded = np.ceil(position)
    else:
        half = 0.5 + _HALFWAY
        rounded = np.ceil(position - half) if rounding == "round_prefer_floor" else np.floor(position + half)
    return np.asarray(rounded)
