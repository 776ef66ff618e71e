"""The rows under bands of output rows in scratch, padded, so that taps read neighbouring elements of whole rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Var

from backends.cpu.kernels.planar_window.plan import Line, PlanarPlan, steps
from backends.cpu.kernels.planar_window.read import PlanarWindow
from backends.cpu.machine import Machine
from backends.tensorir.emit import Expr, Nest, guard, ramp, splat
from backends.tensorir.vectors import fitting_lanes


@dataclass(frozen=True)
class StagedBand:
    """Output rows `first` to `first + rows - 1` of plane `at`, which are at `slot` of the block's scratch."""

    at: tuple[Expr, Expr]
    first: Expr
    rows: Expr
    slot: Expr


@dataclass(frozen=True)
class StagedRows:
    """The rows under each band of a block, in scratch: [slot][row][phase][line.pitch], flat."""

    nest: Nest
    operator: PlanarWindow
    plan: PlanarPlan
    line: Line
    scratch: Var
    machine: Machine

    @staticmethod
    def allocate(nest: Nest, operator: PlanarWindow, plan: PlanarPlan, line: Line, machine: Machine) -> StagedRows:
        """Return scratch for the largest bands, the padding at the sides already in place."""
        rows = operator.planes.window.rows_under(plan.bands.longest) * plan.block
        size = rows * operator.planes.window.strides[1] * line.pitch
        staged = StagedRows(nest, operator, plan, line, scratch=nest.allocate("line", (size,)), machine=machine)
        staged._clear(0, size)
        return staged

    @property
    def row_size(self) -> int:
        """Elements of a row: all its phases."""
        return self.operator.planes.window.strides[1] * self.line.pitch

    def start(self, slot: Expr) -> Expr:
        """Return where the rows of a band begin."""
        return slot * (self.operator.planes.window.rows_under(self.plan.bands.longest) * self.row_size)

    def _clear(self, start: Expr, size: int) -> None:
        nest, lanes = self.nest, self.plan.lanes
        with nest.loop("v", size // lanes) as v:
            nest.store(self.scratch, [ramp(start + v * lanes, lanes)], splat(self.operator.identity, lanes))

    def fill(self, band: StagedBand) -> None:
        """Copy the rows under a band."""
        nest, planes = self.nest, self.operator.planes
        window = planes.window
        begin = nest.bind("begin", self.start(band.slot))
        under = window.rows_under(band.rows)
        if planes.pads_rows and self.plan.bands.count == 1:
            top = window.padding[0]
            with nest.loop("row", max(0, min(planes.height, under - top))) as row:
                self._copy([*band.at, row], nest.bind("line_start", begin + (row + top) * self.row_size))
            return
        with nest.loop("row", under) as row:
            source = nest.bind("source_row", band.first * window.strides[0] - window.padding[0] + row)
            start = nest.bind("line_start", begin + row * self.row_size)
            inside = tirx.all(source >= 0, source < planes.height) if planes.pads_rows else None
            with guard(nest, inside):
                self._copy([*band.at, source], start)
            if inside is not None:
                with nest.when(tirx.Not(inside)):
                    self._clear(start, self.row_size)

    def _copy(self, source: list[Expr], start: Expr) -> None:
        """Copy one row of the image, its elements dealt out to the phases that taps read."""
        nest, line, window = self.nest, self.line, self.operator.planes.window
        stride, left = window.strides[1], window.padding[1]
        phases = sorted({kx * window.dilation[1] % stride for kx in range(window.kernel[1])})
        for position in self._single_positions():
            for phase in phases:
                column = position * stride + phase - left
                if 0 <= column < self.operator.planes.width:
                    where = start + (phase * line.pitch + line.origin + position)
                    nest.store(self.scratch, [where], tirx.BufferLoad(self.operator.data, [*source, column]))
        if line.end == line.first:
            return
        with self._vectors(line.first, line.end) as (position, lanes):
            loads = [
                nest.bind(f"part{i}", tirx.BufferLoad(
                    self.operator.data, [*source, ramp(position * stride - left + i * lanes, lanes)]
                ))
                for i in range(stride)
            ]  # fmt: skip
            for phase in phases:
                where = start + (phase * line.pitch + line.origin) + position
                order = [tirx.const(phase + stride * i, "int32") for i in range(lanes)]
                value = loads[0] if stride == 1 else tirx.Shuffle(loads, order)
                nest.store(self.scratch, [ramp(where, lanes)], value)

    def _single_positions(self) -> list[int]:
        """Return the positions at the border that have some phases inside the image and some outside."""
        line = self.line
        return [position for position in (line.first - 1, line.end) if 0 <= position < line.needed]

    @contextmanager
    def _vectors(self, first: int, end: int) -> Iterator[tuple[Expr, int]]:
        """Yield the position and the lanes of vectors that cover first..end-1; the last one ends there."""
        lanes = fitting_lanes(end - first, self.machine.vector_lanes)
        with self.nest.loop("v", steps(end - first, lanes)) as v:
            position = first + v * lanes
            yield (position if (end - first) % lanes == 0 else tirx.min(position, end - lanes)), lanes

    def load(self, slot: Expr, row: Expr, phase: Expr, position: Expr) -> Expr:
        """Return a vector of output columns under a tap."""
        where = self.start(slot) + row * self.row_size + phase * self.line.pitch + (position + self.line.origin)
        return tirx.BufferLoad(self.scratch, [ramp(where, self.plan.lanes)])
