"""One axis of an image resize as Relay defines it: for each output position, the input positions read and weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fusion.declined import Declined
from fusion.frontends.taps import Taps, keys_cubic

# Relay keeps this distance from whole numbers, so that rounding does not skip a pixel.
_EPSILON = 1e-5


@dataclass(frozen=True)
class ResampledAxis:
    """Sizes of an axis before and after, and the region of interest in shares of the axis."""

    source: int
    target: int
    start: float = 0.0
    end: float = 1.0


@dataclass(frozen=True)
class Resampling:
    """The attributes of a resize: method, coordinate transformation, rounding, and those of the cubic kernel."""

    method: str
    transform: str
    rounding: str
    alpha: float
    exclude_outside: bool


def taps_of(axis: ResampledAxis, how: Resampling) -> Taps:
    """Return the taps of `axis`; refuses a method, transformation or rounding that Relay does not have."""
    position = _positions(axis, how.transform)
    crops = how.transform == "tf_crop_and_resize"
    outside = (position < 0) | (position > axis.source - 1) if crops else None
    if how.method == "nearest_neighbor":
        nearest = _rounded(position, how).astype("int64").clip(0, axis.source - 1)
        return Taps(nearest[:, None], np.ones((axis.target, 1)), outside)
    base = np.floor(position)
    if how.method == "linear":
        indices, weights = base[:, None] + [0, 1], np.stack([1 - (position - base), position - base], 1)
    elif how.method == "cubic":
        indices = base[:, None] + [-1, 0, 1, 2]
        weights = keys_cubic(np.abs(position[:, None] - indices), how.alpha)
        if how.exclude_outside:
            weights = np.where((indices < 0) | (indices >= axis.source), 0.0, weights)
            weights = weights / weights.sum(1, keepdims=True)
    else:
        raise Declined(f"method {how.method}")
    used = np.any(weights != 0.0, axis=0)
    return Taps(indices.astype("int64").clip(0, axis.source - 1)[:, used], weights[:, used], outside)


def _positions(axis: ResampledAxis, transform: str) -> np.ndarray:
    """Return where each output position lies on the input axis."""
    x, scale, last = np.arange(axis.target, dtype="float64"), axis.source / axis.target, axis.source - 1
    if transform == "half_pixel" or (transform == "pytorch_half_pixel" and axis.target > 1):
        return (x + 0.5) * scale - 0.5
    if transform == "asymmetric":
        return x * scale
    if transform == "tf_half_pixel_for_nn":
        return (x + 0.5) * scale
    if transform == "tf_crop_and_resize":
        if axis.target == 1:
            return np.full_like(x, 0.5 * (axis.start + axis.end) * last)
        return axis.start * last + x * (axis.end - axis.start) * last / (axis.target - 1)
    if transform in ("align_corners", "pytorch_half_pixel"):
        return x * last / max(axis.target - 1, 1)
    raise Declined(f"coordinate_transformation_mode {transform}")


def _rounded(position: np.ndarray, how: Resampling) -> np.ndarray:
    rounding = how.rounding or ("round" if how.transform == "align_corners" else "floor")
    if rounding in ("round", "round_prefer_ceil"):
        return np.floor(position + 0.5)
    if rounding == "round_prefer_floor":
        return np.ceil(position - 0.5)
    if rounding == "floor":
        return np.floor(position + _EPSILON)
    if rounding == "ceil":
        return np.ceil(position - _EPSILON)
    raise Declined(f"rounding_method {rounding}")
