"""A convolution that cuDNN runs, as plain data; its tensors are the images, the weights, the result, and the bias and
the residual where there are any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backends.cuda.libraries.sums import DTYPES, LibrarySums

NAME = "cudnn"
"""Of the library, in the registry and in code files."""
_PAIRS = ("size", "taps", "strides", "dilations", "before", "after")


@dataclass(frozen=True)
class LibraryConvolution(LibrarySums):
    """`max(sum over r, s, c of image[n, y * stride + r * dilation - before, ..., c] * weight[o, r, s, c] + bias[o] +
    residual[n, y, x, o], 0)`, where images are 0 outside.

    Images, results and the residual lie n, y, x, channel, and weights o, r, s, c. Pairs are of rows and of columns.

    Attributes:
        images: Extent of n; `channels` is that of c, of an image, and `made` that of o.
        size: Of an image.
        taps: Extents of r and s.
        before: What is 0 before an image; `after` is that behind it.
        groups: Of channels, each of which is convolved alone: weights have so many times fewer of them.
        dtype: Of all tensors. Sums are float32.
        tfloat32: Whether float32 is rounded to that. cuDNN is given none that is not.
        has_bias: Whether it is added; so for `has_residual`.
        has_relu: Whether the maximum is taken.
    """

    images: int
    size: tuple[int, int]
    channels: int
    made: int
    taps: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    before: tuple[int, int]
    after: tuple[int, int]
    groups: int
    dtype: str
    tfloat32: bool
    has_bias: bool
    has_residual: bool
    has_relu: bool

    @property
    def library(self) -> str:
        """See `LibraryWork`."""
        return NAME

    @property
    def made_size(self) -> tuple[int, int]:
        """Of a result."""
        first, second = (
            (size + before + after - dilation * (taps - 1) - 1) // stride + 1
            for size, before, after, dilation, taps, stride in zip(
                self.size, self.before, self.after, self.dilations, self.taps, self.strides, strict=True
            )
        )
        return first, second

    def __str__(self) -> str:
        parts = [
            f"{self.images} x {self.size[0]} x {self.size[1]} x {self.channels}",
            f"{self.made} of {self.taps[0]} x {self.taps[1]}",
        ]
        parts += [f"stride {self.strides[0]} x {self.strides[1]}"] if self.strides != (1, 1) else []
        parts += [f"dilation {self.dilations[0]} x {self.dilations[1]}"] if self.dilations != (1, 1) else []
        parts += [f"{self.groups} groups"] if self.groups > 1 else []
        added = f"{' + bias' if self.has_bias else ''}{' + residual' if self.has_residual else ''}"
        return f"{', '.join(parts)} {self.multiplied or self.dtype}{added}{', relu' if self.has_relu else ''}"


def read_convolution(fields: Mapping[str, Any]) -> LibraryConvolution:
    """Return the convolution that `dataclasses.asdict` made these fields of.

    Raises:
        ValueError: They are of none.
    """
    made = LibraryConvolution(**{**fields, **{name: _pair(fields[name]) for name in _PAIRS}})
    counts = (
        made.images,
        made.channels,
        made.made,
        made.groups,
        *made.size,
        *made.taps,
        *made.strides,
        *made.dilations,
    )
    is_whole = min(counts) >= 1 and made.channels % made.groups == made.made % made.groups == 0
    if not is_whole or made.dtype not in DTYPES or min(*made.before, *made.after) < 0 or min(made.made_size) < 1:
        raise ValueError(f"a convolution {made} cannot be run as the file says")
    if not made.multiplied or (made.has_relu or made.has_residual) > made.has_bias:
        raise ValueError(f"cuDNN is not given a convolution as {made}")
    return made


def _pair(values: Any) -> tuple[int, int]:
    first, second = (int(value) for value in values)
    return first, second
