"""What an output pixel of a convolution or a pooling sees of its image."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, TypeAlias

from tvm import te, tirx

from backends.tensorir.emit import Expr, int64
from backends.tensorir.extents import Extent, least, most

Attrs: TypeAlias = Any  # of any operator with strides, padding and dilation, each of which is another class to TVM


@dataclass(frozen=True)
class Window:
    """Geometry of a convolution or pooling: kernel, strides and dilations as (height, width), padding as (top, left,
    bottom, right)."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int]

    @staticmethod
    def of(attrs: Attrs, kernel: tuple[int, int]) -> Window:
        """Return the window of an operator's call."""
        top, left, bottom, right = (int(n) for n in attrs.padding)
        return Window(
            kernel, (int(attrs.strides[0]), int(attrs.strides[1])), (top, left, bottom, right),
            (int(attrs.dilation[0]), int(attrs.dilation[1])),
        )  # fmt: skip

    @staticmethod
    def from_annotation(numbers: list[int]) -> Window:
        """Return what `annotation` wrote."""
        kh, kw, sh, sw, top, left, bottom, right, dh, dw = (int(n) for n in numbers)
        return Window((kh, kw), (sh, sw), (top, left, bottom, right), (dh, dw))

    def annotation(self) -> list[int]:
        return [*self.kernel, *self.strides, *self.padding, *self.dilation]

    def output(self, height: Extent, width: Extent) -> tuple[Extent, Extent]:
        """Return the output's height and width."""
        spans = ((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True))
        top, left, bottom, right = self.padding
        padded = (height + top + bottom, width + left + right)
        rows, columns = ((n - span) // s + 1 for n, span, s in zip(padded, spans, self.strides, strict=True))
        return rows, columns

    def rows_under(self, rows: Expr) -> Expr:
        """Return how many rows of the padded image lie under `rows` rows of the result, those between taps included."""
        return (rows - 1) * self.strides[0] + (self.kernel[0] - 1) * self.dilation[0] + 1

    def taps_inside(self, axis: int, extent: int, first: Expr, last: Expr) -> tuple[Expr, Expr]:
        """Return the first and how many of the taps of an axis (0: rows) lie on an image of `extent` rows or columns
        for any pixel from `first` to `last` of the result, a few more where the window's stride leaves gaps."""
        before, apart, stride = self.padding[axis], self.dilation[axis], self.strides[axis]
        kernel = int64(self.kernel[axis])
        begin = tirx.truncdiv(tirx.max(before - last * stride, int64(0)) + (apart - 1), int64(apart))
        end = tirx.floordiv(extent - 1 + before - first * stride + apart, int64(apart))
        begin, end = tirx.min(begin, kernel), tirx.max(tirx.min(end, kernel), int64(0))
        return begin, tirx.max(end - begin, int64(0))

    def readers(self, pixels: int) -> list[tuple[int, list[tuple[int, int]]]]:
        """Return the columns of the image under a row of `pixels` pixels of the result, counted from that under the
        first tap, each with the pixels that see it and the column of the window under which they do."""
        found = defaultdict[int, list[tuple[int, int]]](list)
        for pixel, tap in product(range(pixels), range(self.kernel[1])):
            found[pixel * self.strides[1] + tap * self.dilation[1]].append((pixel, tap))
        return sorted(found.items())

    def merges(self, groups: int) -> bool:
        """Return whether the taps of a row and the channels under them lie together: one long k."""
        return groups == 1 and self.dilation[1] == 1

    @property
    def is_pointwise(self) -> bool:
        return self.kernel == (1, 1) and self.strides == (1, 1) and not any(self.padding)


@dataclass(frozen=True)
class UnderWindow:
    """Sizes of `batch` images of height x width pixels and `channels` channels under a window, inside a kernel.

    What follows from open sizes is an expression of them.

    Attributes:
        steps: Of k, for each pixel and channel, of the convolution that makes the image; 0 where it is given.
        input_bytes: Of one image that the kernel reads.
    """

    batch: Extent
    height: Extent
    width: Extent
    channels: int
    window: Window
    steps: int
    input_bytes: int

    @property
    def rows(self) -> Extent:
        """Rows of the result."""
        return self.window.output(self.height, self.width)[0]

    @property
    def columns(self) -> Extent:
        """Columns of the result."""
        return self.window.output(self.height, self.width)[1]

    def buffered_rows(self, passing: int = 1) -> int:
        """Return how many rows of the padded image lie under `passing` rows of the result."""
        return int(self.window.rows_under(passing))

    def made_rows(self, rows: Extent) -> Extent:
        """Return how many rows of the image lie under `rows` rows of the result at most."""
        return least(self.window.rows_under(rows), self.height)

    @property
    def buffered_columns(self) -> Extent:
        """Columns of the padded image, those under no pixel of the result left out where they are padding."""
        window = self.window
        under = (self.columns - 1) * window.strides[1] + (window.kernel[1] - 1) * window.dilation[1] + 1
        return most(window.padding[1] + self.width, under)

    @property
    def sees_all_rows(self) -> bool:
        """Whether all rows under the result are rows of the image, at all sizes."""
        if isinstance(self.height, int):
            return not self.window.padding[0] and bool(self.window.rows_under(self.rows) <= self.height)
        return not self.window.padding[0] and not self.window.padding[2]

    @property
    def skips_rows(self) -> bool:
        """Whether there are rows of the image under no window."""
        return bool(self.window.strides[0] > self.buffered_rows())


def fitted_window(window: Window, image: Sequence[Expr], result: Sequence[Expr], ceil_mode: bool) -> Window:
    """Return the window over an `image` of height x width with the padding at the end that its `result` needs: the same
    at all sizes. `ceil_mode` enlarges it by less than a stride, and lets no window begin behind the image."""
    top, left, *ends = window.padding
    spans = [(taps - 1) * apart + 1 for taps, apart in zip(window.kernel, window.dilation, strict=True)]
    if ceil_mode:
        ends = [min(n + stride, span) - 1 for n, stride, span in zip(ends, window.strides, spans, strict=True)]
    found = replace(window, padding=(top, left, ends[0], ends[1]))
    if found.output(int(image[0]), int(image[1])) == (int(result[0]), int(result[1])):
        return found
    for axis, before in enumerate((top, left)):
        last = (int(result[axis]) - 1) * window.strides[axis] - before + spans[axis]
        ends[axis] = max(0, last - int(image[axis]))
    return replace(window, padding=(top, left, ends[0], ends[1]))


def taps_that_meet(window: Window, axis: int) -> int:
    """Return how many taps of a transposed convolution along an axis `read_into` asks for a pixel of the result: those
    that may meet it, every stride-th one, or all where they are dilated."""
    taps, stride = window.kernel[axis], window.strides[axis]
    return -(-taps // stride) if window.dilation[axis] == 1 else taps


def read_into(
    window: Window, size: tuple[int, int], pixel: tuple[Expr, Expr], step: tuple[Expr, Expr],
    load: Callable[[Expr, Expr, Expr, Expr], Expr],
) -> Expr:  # fmt: skip
    """Return what `load`, from row and column and the tap along both axes to a float32 value, reads of an image of
    `size` for one of the taps of a transposed convolution at a pixel of its result, the one that `step` says of
    `taps_that_meet`; 0 where that puts no pixel of the image there."""
    reads = [_read_along(window, axis, size[axis], pixel[axis], step[axis]) for axis in (0, 1)]
    (row, tap_y, _), (column, tap_x, _) = reads
    inside = tirx.all(*(condition for *_, conditions in reads for condition in conditions))
    return te.if_then_else(inside, load(row, column, tap_y, tap_x), tirx.const(0, "float32"))


def _read_along(window: Window, axis: int, size: int, at: Expr, step: Expr) -> tuple[Expr, Expr, tuple[Expr, ...]]:
    """Return the place in the image, the tap, and what holds where that tap puts that place at a pixel `at`."""
    stride, dilation, padded = window.strides[axis], window.dilation[axis], at + window.padding[axis]
    if dilation == 1:
        place, tap = padded // stride - step, padded % stride + step * stride
        return place, tap, (tap < window.kernel[axis], place >= 0, place < size)
    reach = padded - step * dilation
    place = reach // stride
    return place, step, (reach % stride == 0, place >= 0, place < size)


def read_under(
    window: Window, size: tuple[int, int], pixel: tuple[Expr, Expr], tap: tuple[Expr, Expr],
    load: Callable[[Expr, Expr], Expr], outside: float = 0.0, dtype: str = "float32",
) -> Expr:  # fmt: skip
    """Return what `load`, from row and column to a value of `dtype`, reads of an image of `size` under a tap of the
    window at an output pixel; `outside` where the tap is on the padding."""
    top, left, _, _ = window.padding
    y = pixel[0] * window.strides[0] + tap[0] * window.dilation[0] - top
    x = pixel[1] * window.strides[1] + tap[1] * window.dilation[1] - left
    value = load(y, x)
    if not any(window.padding):
        return value
    inside = tirx.all(y >= 0, y < size[0], x >= 0, x < size[1])
    return te.if_then_else(inside, value, tirx.const(outside, dtype))
