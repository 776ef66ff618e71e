"""Convolution and pooling in numpy, for the float64 reference: plain, fast enough, and independent of every engine."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

# The windows that a convolution copies at a time.
_BLOCK_BYTES = 8 << 20


@dataclass(frozen=True)
class ReferenceWindow:
    """A sliding window over the spatial axes of an (N, C, D1, ...) array, resolved from ONNX attributes.

    Attributes:
        kernel, strides, dilations: One number per spatial axis.
        begins, ends: Padding in front and behind, per spatial axis; `ends` includes `extra`.
        extra: What ceil_mode adds behind, which an average never counts.
        outputs: Output size per spatial axis.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    extra: tuple[int, ...]
    outputs: tuple[int, ...]

    def view(self, data: np.ndarray, fill: float) -> np.ndarray:
        """Return the windows of `data` padded with `fill`, as a view of shape (N, C, *outputs, *kernel)."""
        padding = [(0, 0), (0, 0), *zip(self.begins, self.ends, strict=True)]
        padded = np.pad(data, padding, constant_values=fill) if np.any(padding) else data
        extents = [(size - 1) * step + 1 for size, step in zip(self.kernel, self.dilations, strict=True)]
        axes = tuple(range(2, data.ndim))
        windows = np.lib.stride_tricks.sliding_window_view(padded, extents, axis=axes)
        counted = zip(self.outputs, self.strides, strict=True)
        places = [slice(0, (count - 1) * step + 1, step) for count, step in counted]
        taps = [slice(None, None, step) for step in self.dilations]
        return windows[_spatial(*places, *taps)]


def resolve(
    spatial: Sequence[int],
    kernel: Sequence[int],
    *,
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
    pads: Sequence[int] | None,
    auto_pad: str | None,
    ceil_mode: int | None = 0,
) -> ReferenceWindow:
    """Return the window that ONNX's attributes describe over axes of size `spatial`."""
    rank = len(spatial)
    steps = tuple(strides or (1,) * rank)
    spread = tuple(dilations or (1,) * rank)
    extents = [(size - 1) * step + 1 for size, step in zip(kernel, spread, strict=True)]
    begins, ends = _padding(spatial, extents, steps, pads, auto_pad)
    outputs, extra = [], []
    for axis in range(rank):
        room = spatial[axis] + begins[axis] + ends[axis] - extents[axis]
        count = (math.ceil(room / steps[axis]) if ceil_mode else room // steps[axis]) + 1
        # A window that ceil_mode adds must start inside the input or its front padding.
        if ceil_mode and (count - 1) * steps[axis] >= spatial[axis] + begins[axis]:
            count -= 1
        outputs.append(count)
        extra.append(max(0, (count - 1) * steps[axis] - room))
        ends[axis] += extra[axis]
    return ReferenceWindow(
        kernel=tuple(kernel),
        strides=steps,
        dilations=spread,
        begins=tuple(begins),
        ends=tuple(ends),
        extra=tuple(extra),
        outputs=tuple(outputs),
    )


def _spatial(*places: slice | int) -> tuple[slice | int, ...]:
    """Return an index that takes everything along the first two axes and `places` along the others."""
    return (slice(None), slice(None), *places)


def _padding(
    spatial: Sequence[int],
    extents: Sequence[int],
    steps: Sequence[int],
    pads: Sequence[int] | None,
    auto_pad: str | None,
) -> tuple[list[int], list[int]]:
    rank = len(spatial)
    if auto_pad in (None, "", "NOTSET"):
        given = list(pads or (0,) * (2 * rank))
        return given[:rank], given[rank:]
    if auto_pad == "VALID":
        return [0] * rank, [0] * rank
    totals = [
        max((math.ceil(size / step) - 1) * step + extent - size, 0)
        for size, extent, step in zip(spatial, extents, steps, strict=True)
    ]
    small = [total // 2 for total in totals]
    large = [total - half for total, half in zip(totals, small, strict=True)]
    return (small, large) if auto_pad == "SAME_UPPER" else (large, small)


class Conv(OpRun):  # type: ignore[misc]
    """Convolution: one matrix product per group, image and block of output rows."""

    def _run(self, x: np.ndarray, w: np.ndarray, b: np.ndarray | None = None, **options: Any) -> tuple[np.ndarray]:
        window = resolve(
            x.shape[2:],
            w.shape[2:],
            strides=options["strides"],
            dilations=options["dilations"],
            pads=options["pads"],
            auto_pad=options["auto_pad"],
        )
        y = np.empty((x.shape[0], w.shape[0], *window.outputs), np.result_type(x, w))
        for windows, image in zip(window.view(x, 0.0), y, strict=True):
            _convolve(windows, w, options["group"] or 1, image)
        if b is not None:
            y += b.reshape(1, -1, *(1,) * (x.ndim - 2))
        return (y,)


def _convolve(windows: np.ndarray, w: np.ndarray, group: int, y: np.ndarray) -> None:
    """Write into `y` (M, *outputs) the `windows` (C, *outputs, *kernel) times `w` (M, C/group, *kernel).

    Blocks of rows keep the copied windows small: one layer of PP-OCR's detection has 0.33 GB of them.
    """
    rank = y.ndim - 1
    weights = w.reshape(group, len(w) // group, -1)
    per_row = weights.shape[2] * group * math.prod(y.shape[2:]) * y.itemsize
    rows = max(1, _BLOCK_BYTES // max(per_row, 1))
    for start in range(0, y.shape[1], rows):
        place = slice(start, start + rows)
        block = y[:, place]
        taps_first = np.moveaxis(windows[:, place], range(1 + rank, 1 + 2 * rank), range(1, 1 + rank))
        columns = taps_first.reshape(group, weights.shape[2], -1)
        block[...] = (weights @ columns).reshape(block.shape)


class ConvTranspose(OpRun):  # type: ignore[misc]
    """Transposed convolution: every tap's contribution is added to its strided place in the output."""

    def _run(self, x: np.ndarray, w: np.ndarray, b: np.ndarray | None = None, **options: Any) -> tuple[np.ndarray]:
        rank, group = x.ndim - 2, options["group"] or 1
        strides = tuple(options["strides"] or (1,) * rank)
        dilations = tuple(options["dilations"] or (1,) * rank)
        full = [
            (size - 1) * step + (taps - 1) * spread + 1
            for size, step, taps, spread in zip(x.shape[2:], strides, w.shape[2:], dilations, strict=True)
        ]
        y = np.zeros((x.shape[0], w.shape[1] * group, *full), x.dtype)
        for tap in np.ndindex(*w.shape[2:]):
            places = tuple(
                slice(at * spread, at * spread + (size - 1) * step + 1, step)
                for at, spread, size, step in zip(tap, dilations, x.shape[2:], strides, strict=True)
            )
            y[_spatial(*places)] += _grouped(x, w[_spatial(*tap)], group)
        y = _crop(y, strides, options)
        return (y if b is None else y + b.reshape(1, -1, *(1,) * rank),)


def _grouped(x: np.ndarray, w: np.ndarray, group: int) -> np.ndarray:
    parts = [
        np.moveaxis(np.tensordot(part, kernel, axes=(1, 0)), -1, 1)
        for part, kernel in zip(np.split(x, group, axis=1), np.split(w, group, axis=0), strict=True)
    ]
    return np.concatenate(parts, axis=1)


def _crop(y: np.ndarray, strides: Sequence[int], options: dict[str, Any]) -> np.ndarray:
    """Return `y`, the full transposed convolution, cut and extended as pads, output_padding and output_shape ask."""
    rank = y.ndim - 2
    extra = tuple(options["output_padding"] or (0,) * rank)
    auto_pad, wanted = options["auto_pad"], options["output_shape"]
    if wanted is None and auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        raise NotImplementedError("ConvTranspose with auto_pad and no output_shape")
    if wanted is None:
        pads = list(options["pads"] or (0,) * (2 * rank))
        begins = pads[:rank]
        sizes = [y.shape[2 + a] + extra[a] - pads[a] - pads[rank + a] for a in range(rank)]
    else:
        sizes = list(wanted[-rank:])
        totals = [y.shape[2 + a] + extra[a] - sizes[a] for a in range(rank)]
        begins = [total // 2 if auto_pad == "SAME_UPPER" else total - total // 2 for total in totals]
    padded = np.pad(y, [(0, 0), (0, 0), *((0, amount) for amount in extra)])
    cut = tuple(slice(begin, begin + size) for begin, size in zip(begins, sizes, strict=True))
    return padded[_spatial(*cut)]


class MaxPool(OpRun):  # type: ignore[misc]
    """Maximum over each window; the optional indices output is not computed."""

    def _run(self, x: np.ndarray, **options: Any) -> tuple[np.ndarray]:
        window = _pool_window(x, options)
        return (window.view(x, -np.inf).max(axis=tuple(range(x.ndim, 2 * x.ndim - 2))),)


class AveragePool(OpRun):  # type: ignore[misc]
    """Mean over each window, over the padding too where count_include_pad says so."""

    def _run(self, x: np.ndarray, **options: Any) -> tuple[np.ndarray]:
        window, axes = _pool_window(x, options), tuple(range(x.ndim, 2 * x.ndim - 2))
        counted, ones = window, np.ones((1, 1, *x.shape[2:]), x.dtype)
        if options.get("count_include_pad"):
            amounts = zip(window.begins, window.ends, window.extra, strict=True)
            ones = np.pad(
                ones, [(0, 0), (0, 0), *((begin, end - extra) for begin, end, extra in amounts)], constant_values=1
            )
            counted = dataclasses.replace(window, begins=(0,) * len(axes), ends=window.extra)
        return (window.view(x, 0.0).sum(axis=axes) / counted.view(ones, 0.0).sum(axis=axes),)


def _pool_window(x: np.ndarray, options: dict[str, Any]) -> ReferenceWindow:
    return resolve(
        x.shape[2:],
        options["kernel_shape"],
        strides=options["strides"],
        dilations=options.get("dilations"),
        pads=options["pads"],
        auto_pad=options["auto_pad"],
        ceil_mode=options.get("ceil_mode"),
    )


OPERATORS = (Conv, ConvTranspose, MaxPool, AveragePool)
