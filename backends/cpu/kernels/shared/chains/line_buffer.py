"""Rows of an image between two operators of one kernel, of which the second has a window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Var

from backends.cpu.kernels.shared.window import UnderWindow
from backends.tensorir.emit import Expr, Nest, int64, ramp, splat, vector_runs
from backends.tensorir.extents import Extent


@dataclass(frozen=True)
class LineBuffer:
    """The rows of the padded image under a few rows of the result, [part][row % rows][column][element of a pixel].

    Attributes:
        passing: Rows of the result that are made before the next rows of the image.
        pixel: Elements of a pixel.
        parts: Of the channels, which are there one after the other.
        outside: What the window sees outside of the image.
        lanes: Of a vector.
    """

    nest: Nest
    buffer: Var
    sizes: UnderWindow
    passing: int
    pixel: int
    parts: int
    outside: float
    lanes: int

    @staticmethod
    def allocate(
        nest: Nest, sizes: UnderWindow, passing: int, pixel: int, lanes: int, *, parts: int = 1, outside: float = 0.0
    ) -> LineBuffer:
        """Return a line buffer in a buffer of its own, its border columns set."""
        rows = parts * sizes.buffered_rows(passing)
        buffer = nest.allocate("ring", (rows * sizes.buffered_columns * pixel,))
        lines = LineBuffer(
            nest=nest,
            buffer=buffer,
            sizes=sizes,
            passing=passing,
            pixel=pixel,
            parts=parts,
            outside=outside,
            lanes=lanes,
        )
        left = sizes.window.padding[1]
        right = sizes.buffered_columns - left - sizes.width
        with nest.loop("ring_row", rows) as row:
            for column, many in ((0, left), (left + sizes.width, right)):
                lines._clear((row * sizes.buffered_columns + column) * pixel, many)
        return lines

    def place(self, row: Expr, part: Expr = 0) -> Expr:
        """Return where a row of the padded image is, in elements."""
        rows = self.sizes.buffered_rows(self.passing)
        return (tirx.floormod(row, rows) + part * rows) * (self.sizes.buffered_columns * self.pixel)

    def fill(self, first: Expr, start: Expr, many: Expr, make: Callable[[Expr, Expr], None], part: Expr = 0) -> None:
        """Put in what lies under `many` rows of the result from `start` on, but for what the pass before has put in.

        Args:
            first: Whether this is the first pass.
            make: Emits a row of the image, given which and the place of its first element.
        """
        nest, sizes, window = self.nest, self.sizes, self.sizes.window
        under, (top, left, *_) = window.rows_under(many), window.padding
        end = nest.settle("end", start * window.strides[0] + under)
        new = nest.settle("new", tirx.Select(first, int64(under), int64(many * window.strides[0])))
        with nest.loop("new_row", new) as step:
            padded = nest.settle("padded_row", end - new + step)
            place = nest.settle("place", self.place(padded, part) + left * self.pixel)
            source = nest.settle("source", padded - top)
            if sizes.sees_all_rows:
                make(source, place)
            else:
                inside = tirx.all(source >= 0, source < sizes.height)
                with nest.when(inside):
                    make(source, place)
                with nest.when(tirx.Not(inside)):
                    self._clear(place, sizes.width)

    def _clear(self, place: Expr, columns: Extent) -> None:
        for at, lanes in vector_runs(self.nest, columns * self.pixel, self.lanes):
            value = splat(tirx.const(self.outside, "float32"), lanes)
            self.nest.store(self.buffer, [ramp(place + at, lanes)], value)
