"""Rows of an image with a border of zeros, so that a micro-kernel never asks whether a tap lies on the padding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Var

from backends.cpu.kernels.shared.window import Window
from backends.tensorir.emit import Expr, Nest, ramp, splat, vector_runs
from backends.tensorir.extents import Extent
from backends.tensorir.stages import dims_of, dtype_of


@dataclass(frozen=True)
class PaddedRows:
    """Scratch for the input rows of one task, zeros around them: [row][(left + width + right) * channels]."""

    data: Var
    window: Window
    rows: Extent  # output rows of the largest task
    lanes: int

    @property
    def dtype(self) -> str:
        """Type of scratch: TVM would make float32 of a buffer of bfloat16."""
        dtype = dtype_of(self.data)
        return "uint16" if dtype == "bfloat16" else dtype

    def fill(
        self, nest: Nest, outer: Expr, first: Expr, end: Expr
    ) -> tuple[Var, Expr, Callable[[Expr, Expr, Expr], list[Expr]]]:
        """Copy the rows under the output rows first..end-1; return scratch, its first output row, and how it is
        indexed."""
        _, height, width, channels = dims_of(self.data)
        top, left, _, right = self.window.padding
        row_size = (left + width + right) * channels
        scratch = nest.allocate("padded", (self.window.rows_under(self.rows), row_size), self.dtype)
        with nest.loop("row", self.window.rows_under(end - first)) as row:
            source = first * self.window.strides[0] - top + row
            with nest.when(tirx.all(source >= 0, source < height)):
                self._clear(nest, scratch, row, 0, left * channels)
                self._copy(
                    nest, scratch, row=row, start=left * channels, source=[outer, source, 0], size=width * channels
                )
                self._clear(nest, scratch, row, (left + width) * channels, right * channels)
            with nest.when(tirx.any(source < 0, source >= height)):
                self._clear(nest, scratch, row, 0, row_size)
        return scratch, first, lambda _, y, column: [y, column]

    def _clear(self, nest: Nest, scratch: Var, row: Expr, start: Extent, size: Extent) -> None:
        zero = tirx.const(0, self.dtype)
        for at, lanes in vector_runs(nest, size, self.lanes):
            nest.store(scratch, [row, ramp(start + at, lanes)], splat(zero, lanes))

    def _copy(self, nest: Nest, scratch: Var, row: Expr, start: int, source: list[Expr], size: Extent) -> None:
        for at, lanes in vector_runs(nest, size, self.lanes):
            value = tirx.BufferLoad(self.data, [*source, ramp(at, lanes)])
            if self.dtype != dtype_of(self.data):
                value = tirx.reinterpret(self.dtype if lanes == 1 else f"{self.dtype}x{lanes}", value)
            nest.store(scratch, [row, ramp(start + at, lanes)], value)
