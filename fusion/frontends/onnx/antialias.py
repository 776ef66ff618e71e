"""Filters of a one-dimensional resize with antialias, as ONNX Runtime computes them: in float32, by Pillow's method.

Where the result is smaller than its source, the kernel of the interpolation is as much wider as the source is larger,
so that every element of the source has a share in the result.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fusion.frontends.onnx.interpolate import ResizeAxis, source_positions

_ONE, _HALF = np.float32(1), np.float32(0.5)


@dataclass(frozen=True)
class Filters:
    """A filter for each position of the result: its weights for the elements from `first` up to `stop`.

    Attributes:
        first: int64 [target].
        stop: int64 [target]; not above the source's size.
        weights: float32 [target, taps]; what lies at or behind `stop` is not read.
        outside: bool [target]; positions that take the fill value, if the transformation has one.
    """

    first: np.ndarray
    stop: np.ndarray
    weights: np.ndarray
    outside: np.ndarray


def filters_of(axis: ResizeAxis, mode: str, transform: str, exclude_outside: bool, cubic_a: float) -> Filters:
    """Return the filters of `axis`; the argument names are those of ONNX's Resize, `mode` is "linear" or "cubic"."""
    step = _ONE / np.float32(axis.scale)
    stretch = max(step, _ONE)
    reach = np.float32(2 if mode == "cubic" else 1) * stretch
    places = np.arange(axis.target, dtype="float32") if step == _ONE else source_positions(axis, transform)
    centers = _HALF + places
    begin, end = (np.floor(centers + side + _HALF).astype("int64") for side in (-reach, reach))
    first, stop = begin.clip(0, axis.source), end.clip(0, axis.source)
    read = begin[:, None] + np.arange(int((end - begin).max(initial=1)))
    distance = np.abs((read.astype("float32") - centers[:, None] + _HALF) * (_ONE / stretch))
    shares = _cubic(distance, np.float32(cubic_a)) if mode == "cubic" else np.maximum(_ONE - distance, np.float32(0))
    inside = (read >= 0) & (read < axis.source)
    counted = read < end[:, None]
    if exclude_outside:
        counted &= inside
    shares = np.where(counted, shares, np.float32(0))
    weights = np.zeros_like(shares)
    # An element outside of the source is the nearest one inside: the edge gets its share.
    rows, columns = np.arange(axis.target)[:, None], read.clip(0, axis.source - 1) - first[:, None]
    for part in (inside, ~inside & (first < stop)[:, None]):
        np.add.at(weights, (np.broadcast_to(rows, read.shape)[part], columns[part]), shares[part])
    total = np.cumsum(shares, axis=1, dtype="float32")[:, -1:]
    weights *= _ONE / np.where(total == 0, _ONE, total)
    outside = (centers - _HALF < 0) | (centers - _HALF > np.float32(axis.source - 1))
    return Filters(first, stop, weights, outside)


def _cubic(distance: np.ndarray, a: np.float32) -> np.ndarray:
    """Keys's kernel, in the order of operations in which ONNX Runtime rounds it."""
    near = ((a + np.float32(2)) * distance - (a + np.float32(3))) * distance * distance + _ONE
    far = (((distance - np.float32(5)) * distance + np.float32(8)) * distance - np.float32(4)) * a
    return np.asarray(np.where(distance < 1, near, np.where(distance < 2, far, np.float32(0))))
