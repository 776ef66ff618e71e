"""How the tasks of a kernel over images are cut of which only a call knows how many there are, and how large.

    rows of a task            what they take stays in half of L2, and all threads have some
    parallel task: (image, rows, part of the channels)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tvm import tirx
from tvm.tirx import ForKind

from backends.cpu.kernels.shared.open_panels import chunk_of
from backends.cpu.machine import Machine
from backends.tensorir.emit import Expr, Nest, int64
from backends.tensorir.extents import Extent

_LONG_SHARE = 32
"""Rows of a thread that are two tasks, as all wait for the slowest: of fewer, those under the border take too long."""

_UNEVEN = 8
"""The part of all rows that threads may wait for others: 3 images of 12x17, 240 channels of 5x5, took two threads 1.38
times as long as the kernel of that size, and one of 3x309 with 480 channels 1.8 times."""


@dataclass(frozen=True)
class OpenTask:
    """What a task has: rows first..end-1 of an image, and parts start..stop-1 of its channels."""

    image: Expr
    first: Expr
    end: Expr
    start: Expr
    stop: Expr


@dataclass(frozen=True)
class OpenGrid:
    """The tasks of images.

    Attributes:
        images, rows: How many images there are, and rows of each.
        most_rows: Of a task.
        parts: Into how many pieces the channels may be cut.
        threads: Among which they are shared out.
    """

    images: Extent
    rows: Extent
    most_rows: Expr
    parts: int
    threads: int

    @staticmethod
    def of(
        images: Extent, rows: Extent, row_bytes: Extent, parts: int, machine: Machine, threads: int,
        weight_bytes: int = 0,
    ) -> OpenGrid:  # fmt: skip
        """Return the grid where a row of a task takes `row_bytes`, and the weights that all rows take so many: what is
        larger is not read by several threads, where the other can be cut."""
        most = tirx.max(tirx.truncdiv(int64(machine.l2_bytes // 2), tirx.max(int64(row_bytes), int64(1))), int64(1))
        if threads > 1:
            share = tirx.truncdiv(int64(images) * rows + (threads - 1), int64(threads))
            share = tirx.Select(share >= _LONG_SHARE, tirx.truncdiv(share + 1, int64(2)), share)
            fewer = tirx.min(most, share)
            by_rows = int64(rows) * row_bytes >= weight_bytes
            most = tirx.Select(by_rows, fewer, most) if parts >= threads else fewer
        return OpenGrid(images, rows, tirx.max(tirx.min(most, int64(rows)), int64(1)), parts, threads)

    def in_bands(self, nest: Nest) -> OpenGrid:
        """Return it with images that are no even shares of threads in more bands, before channels are cut."""
        if self.threads == 1:
            return self
        most = nest.settle("most_of_image", self.most_rows)
        bands = nest.settle("bands_of_image", tirx.truncdiv(int64(self.rows) + (most - 1), most))
        return replace(self, most_rows=_even(self.images, self.rows, most, bands, self.threads))

    def settled(self, nest: Nest) -> OpenGrid:
        """Return it with the rows of a task computed here, once: all indices into scratch of so many rows are made of
        them, which took a twentieth of what compiling PP-OCR's recogniser does."""
        return replace(self, most_rows=nest.settle("most_of_task", self.most_rows))

    @contextmanager
    def tasks(self, nest: Nest) -> Iterator[OpenTask]:
        """Open the loop over tasks."""
        rows = int64(self.rows)
        most = nest.settle("most_rows", self.most_rows)
        bands = nest.settle("bands", tirx.truncdiv(rows + (most - 1), most))
        cuts = nest.settle("cuts", self._cuts(int64(self.images) * bands, tirx.truncdiv(rows + (bands - 1), bands)))
        kind = ForKind.PARALLEL if self.threads > 1 else ForKind.SERIAL
        every = nest.settle("bands_of_images", int64(self.images) * bands)
        with nest.loop("task", every * cuts, kind) as task:
            band, cut = _place_of(task, every)
            pair = nest.settle("band_of_images", band)
            start, stop = chunk_of(nest, "part", cut, int64(self.parts), cuts)
            first, end = chunk_of(nest, "row", tirx.truncmod(pair, bands), rows, bands)
            yield OpenTask(nest.settle("image", tirx.truncdiv(pair, bands)), first, end, start, stop)

    def _cuts(self, bands: Expr, longest: Expr) -> Expr:
        """Return into how many pieces the channels of so many bands of up to `longest` rows are cut: where some threads
        would wait for others without that, all the same."""
        if self.threads == 1 or self.parts == 1:
            return int64(1)
        is_even = _is_even(int64(self.images) * self.rows, bands, longest, self.threads)
        return tirx.Select(is_even, int64(1), int64(min(self.parts, self.threads)))

    def __str__(self) -> str:
        return f"open images, {self.parts} parts of the channels"


def _is_even(rows: Expr, bands: Expr, longest: Expr, threads: int) -> Expr:
    """Return whether no thread waits for others for long, where `rows` are in so many bands of up to `longest`."""
    busiest = tirx.truncdiv(bands + (threads - 1), int64(threads)) * longest
    return busiest * threads <= rows + tirx.truncdiv(rows, int64(_UNEVEN))


def _even(images: Extent, rows: Extent, most: Expr, bands: Expr, threads: int) -> Expr:
    """Return how many rows a band has at most, where each of the images is `bands` of up to `most`: fewer where threads
    have no even share of these, as those of 3 images, and have one where each image is as many bands as threads, or
    times as many."""
    whole = tirx.truncdiv(bands + (threads - 1), int64(threads)) * threads
    longest = tirx.truncdiv(rows + (bands - 1), bands)
    is_even = _is_even(int64(images) * rows, int64(images) * bands, longest, threads)
    return tirx.Select(tirx.any(is_even, whole > rows), most, tirx.truncdiv(rows + (whole - 1), whole))


def _place_of(task: Expr, every: Expr) -> tuple[Expr, Expr]:
    """Return which of `every` band of images a task has, and which piece of the channels. Neighbouring tasks are one
    thread's: it has all bands in its piece, as these are uneven where channels are cut."""
    return tirx.truncmod(task, every), tirx.truncdiv(task, every)
