"""Loops of windows over planes: vectors run along the rows, and output rows share the input rows they load.

    parallel (equal shares of planes and bands)
      for block of (plane, band of output rows) in the share
        line[row, phase] = rows under each band, padded             per-task scratch, half of L1 at most
        for band in block, for tile of output rows x vectors along the row
          acc[rows, vectors] = 0 or -inf                            registers
          for kx, for input row under the tile
            v = line[row, kx % stride][x + kx // stride]            one load for all output rows above it
            acc[y] = acc[y] + v * weight[ky, kx], or max(acc[y], v)
          outputs = epilogue(acc)

Nothing is copied where the windows lie inside the image and neighbouring outputs read neighbouring elements. A row
shorter than a vector goes to `gathered`, scratch without gaps, each row over what the one before it wrote too
much; the epilogue takes whole vectors from there. Prefetching the next band gained nothing at a stride of 1
(64x128x128: 151 us, 154 without) and lost at 2 (128x128x128: 174 us, 155 without).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf

from tvm import tirx
from tvm.ir import Range, Var
from tvm.sym import Analyzer
from tvm.tirx import ForKind

from backends.cpu.kernels.planar_window.lower import PLANAR
from backends.cpu.kernels.planar_window.plan import Line, Plan, Planes, planes_of
from backends.cpu.kernels.shared.epilogue import Epilogue, RegisterRows
from backends.cpu.kernels.shared.split import Split, tile_count
from backends.cpu.machine import Machine
from backends.tensorir.emit import Expr, Nest, guard, ramp, splat
from backends.tensorir.result import Scheduled
from backends.tensorir.roles import Roles
from backends.tensorir.vectors import fitting_lanes

_UNROLLED_STEPS = 512  # of multiply-adds in one register tile; beyond it the window's columns are a loop


def emit_planar(func: tirx.PrimFunc, roles: Roles, machine: Machine, point: Plan) -> Scheduled:
    """Return the vectorised form of `func`."""
    data, *weights = roles.operands
    nest = Nest()
    takes_max = bool(int(roles.attrs["takes_max"]))
    _Work(
        nest=nest,
        data=data,
        weight=weights[0] if weights else None,
        planes=planes_of(roles),
        plan=point,
        roles=roles,
        machine=machine,
        takes_max=takes_max,
    ).emit()
    return Scheduled(func.with_body(nest.finish()), PLANAR, str(point))


@dataclass(frozen=True)
class _Work:
    nest: Nest
    data: Var
    weight: Var | None
    planes: Planes
    plan: Plan
    roles: Roles
    machine: Machine
    takes_max: bool

    @property
    def identity(self) -> Expr:
        return tirx.const(-inf if self.takes_max else 0.0, "float32")

    def emit(self) -> None:
        """Emit the tasks."""
        nest, planes, plan = self.nest, self.planes, self.plan
        units = planes.count * plan.bands.count
        shares = Split(units, min(units, self.plan.threads))
        with nest.loop("task", shares.count, ForKind.PARALLEL if shares.count > 1 else ForKind.SERIAL) as task:
            staged = _Staged.allocate(self, plan.line) if plan.line else None
            gathered = nest.allocate("gathered", (plan.block * self.out_size + plan.lanes,)) if plan.narrow else None
            epilogue = Epilogue.prepare(nest, self.roles.outputs, plan.rows * plan.vectors * plan.lanes)
            many = tile_count(shares, task)
            with nest.loop("block", _steps(many, plan.block)) as block:
                first = nest.bind("first_unit", shares.start(task) + block * plan.block)
                here = tirx.min(plan.block, many - block * plan.block) if plan.block > 1 else 1
                if staged:
                    with nest.loop("slot", here) as slot:
                        staged.fill(self._band(first + slot, slot))
                with nest.loop("slot", here) as slot:
                    _Tiles(self, staged, self._band(first + slot, slot), epilogue, gathered).emit()
                if gathered is not None:
                    with nest.loop("slot", here) as slot:
                        self._store_plane(self._band(first + slot, slot), gathered)

    @property
    def out_size(self) -> int:
        return self.planes.out_height * self.planes.out_width

    def _band(self, unit: Expr, slot: Expr) -> _Band:
        nest, bands, channels = self.nest, self.plan.bands, self.roles.shape[1]
        unit = nest.bind("unit", unit)
        plane, band = tirx.floordiv(unit, bands.count), tirx.floormod(unit, bands.count)
        n, c = nest.bind("n", tirx.floordiv(plane, channels)), nest.bind("c", tirx.floormod(plane, channels))
        return _Band((n, c), nest.bind("first_row", bands.start(band)), tile_count(bands, band), slot)

    def _store_plane(self, band: _Band, gathered: Var) -> None:
        """Apply the epilogue to a plane in scratch, as if it were one row."""
        nest, lanes = self.nest, fitting_lanes(self.out_size, self.machine.vector_lanes)
        with nest.loop("v", _steps(self.out_size, lanes)) as v:
            start = nest.bind("start", tirx.min(v * lanes, self.out_size - lanes))
            lane = Var("lane", "int64")
            analyzer = Analyzer()
            analyzer.bind(lane, Range(0, lanes))
            place, width = start + lane, self.planes.out_width
            where = [*band.at, tirx.floordiv(place, width), tirx.floormod(place, width)]
            for output in self.roles.outputs:
                indices, value = output.at(where, tirx.BufferLoad(gathered, [band.slot * self.out_size + place]))
                store = tirx.BufferStore(output.buffer, value, [analyzer.simplify(index) for index in indices])
                nest.add_loop(lane, lanes, ForKind.VECTORIZED if lanes > 1 else ForKind.SERIAL, [store])


@dataclass(frozen=True)
class _Band:
    """Output rows `first` to `first + rows - 1` of plane `at`, which are at `slot` of the block's scratch."""

    at: tuple[Expr, Expr]
    first: Expr
    rows: Expr
    slot: Expr


@dataclass(frozen=True)
class _Staged:
    """The rows under each band of a block, in scratch: [slot][row][phase][line.pitch], flat."""

    work: _Work
    line: Line
    scratch: Var

    @staticmethod
    def allocate(work: _Work, line: Line) -> _Staged:
        """Return scratch for the largest bands, the padding at the sides already in place."""
        rows = work.planes.window.rows_under(work.plan.bands.longest) * work.plan.block
        size = rows * work.planes.window.strides[1] * line.pitch
        staged = _Staged(work, line, work.nest.allocate("line", (size,)))
        staged._clear(0, size)
        return staged

    @property
    def row_size(self) -> int:
        return self.work.planes.window.strides[1] * self.line.pitch

    def start(self, slot: Expr) -> Expr:
        """Return where the rows of a band begin."""
        return slot * (self.work.planes.window.rows_under(self.work.plan.bands.longest) * self.row_size)

    def _clear(self, start: Expr, size: int) -> None:
        nest, lanes = self.work.nest, self.work.plan.lanes
        with nest.loop("v", size // lanes) as v:
            nest.store(self.scratch, [ramp(start + v * lanes, lanes)], splat(self.work.identity, lanes))

    def fill(self, band: _Band) -> None:
        """Copy the rows under a band."""
        nest, planes = self.work.nest, self.work.planes
        window = planes.window
        begin = nest.bind("begin", self.start(band.slot))
        under = window.rows_under(band.rows)
        if planes.pads_rows and self.work.plan.bands.count == 1:
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
        nest, line, window = self.work.nest, self.line, self.work.planes.window
        stride, left = window.strides[1], window.padding[1]
        phases = sorted({kx * window.dilation[1] % stride for kx in range(window.kernel[1])})
        for position in self._single_positions():
            for phase in phases:
                column = position * stride + phase - left
                if 0 <= column < self.work.planes.width:
                    where = start + (phase * line.pitch + line.origin + position)
                    nest.store(self.scratch, [where], tirx.BufferLoad(self.work.data, [*source, column]))
        if line.end == line.first:
            return
        with self._vectors(line.first, line.end) as (position, lanes):
            loads = [
                nest.bind(f"part{i}", tirx.BufferLoad(
                    self.work.data, [*source, ramp(position * stride - left + i * lanes, lanes)]
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
        lanes = fitting_lanes(end - first, self.work.machine.vector_lanes)
        with self.work.nest.loop("v", _steps(end - first, lanes)) as v:
            position = first + v * lanes
            yield (position if (end - first) % lanes == 0 else tirx.min(position, end - lanes)), lanes

    def load(self, slot: Expr, row: Expr, phase: Expr, position: Expr) -> Expr:
        """Return a vector of output columns under a tap."""
        where = self.start(slot) + row * self.row_size + phase * self.line.pitch + (position + self.line.origin)
        return tirx.BufferLoad(self.scratch, [ramp(where, self.work.plan.lanes)])


@dataclass(frozen=True)
class _Tiles:
    """The register tiles of a band."""

    work: _Work
    staged: _Staged | None
    band: _Band
    epilogue: Epilogue
    gathered: Var | None

    def emit(self) -> None:
        """Emit the tiles; the last one of rows ends where the band ends, as does the last one of vectors."""
        nest, plan, rows = self.work.nest, self.work.plan, self.band.rows
        with nest.loop("y_tile", _steps(rows, plan.rows)) as i:
            y = nest.bind("y", tirx.min(i * plan.rows, rows - plan.rows))
            with nest.loop("x_tile", _steps(plan.row_vectors, plan.vectors)) as j:
                self._tile(y, nest.bind("vector", tirx.min(j * plan.vectors, plan.row_vectors - plan.vectors)))

    def _column(self, vector: Expr) -> Expr:
        plan, width = self.work.plan, self.work.planes.out_width
        column = vector * plan.lanes
        return column if width % plan.lanes == 0 or plan.narrow else tirx.min(column, width - plan.lanes)

    def _tile(self, y: Expr, vector: Expr) -> None:
        nest, plan, planes = self.work.nest, self.work.plan, self.work.planes
        registers = RegisterRows(nest, plan.rows * plan.vectors, [(0, plan.lanes)])
        if self.work.takes_max:
            for row in range(registers.rows):
                registers.write(row, 0, splat(self.work.identity, plan.lanes))
        columns = [nest.bind(f"x{i}", self._column(vector + i)) for i in range(plan.vectors)]
        kernel_rows, kernel_columns = planes.window.kernel
        if plan.rows * plan.vectors * kernel_rows * kernel_columns <= _UNROLLED_STEPS:
            for kx in range(kernel_columns):
                self._taps(registers, kx, y, columns)
        else:
            with nest.loop("kx", kernel_columns) as kx:
                self._taps(registers, kx, y, columns)
        self._store(registers, y, vector)

    def _taps(self, registers: RegisterRows, kx: Expr, y: Expr, columns: list[Expr]) -> None:
        """Add one column of the window to the tile."""
        nest, plan, planes = self.work.nest, self.work.plan, self.work.planes
        weights = [self._weight(ky, kx) for ky in range(planes.window.kernel[0])]
        for row, readers in planes.taps(plan.rows).items():
            for i, column in enumerate(columns):
                value = nest.bind("v", self._load(y * planes.window.strides[0] + row, kx, column))
                for out, ky in readers:
                    self._combine(registers, out * plan.vectors + i, value, weights[ky])

    def _combine(self, registers: RegisterRows, row: int, value: Expr, weight: Expr | None) -> None:
        if self.work.takes_max:
            registers.write(row, 0, tirx.max(registers.read(row, 0), value))
        else:
            registers.accumulate(row, 0, value if weight is None else value * weight)

    def _weight(self, ky: int, kx: Expr) -> Expr | None:
        if self.work.weight is None:
            return None
        load = tirx.BufferLoad(self.work.weight, [self.band.at[1], ky, kx])
        return self.work.nest.bind("w", splat(load, self.work.plan.lanes))

    def _load(self, row: Expr, kx: Expr, column: Expr) -> Expr:
        """Return the vector under a tap; `row` counts from the first row under the band, padding included."""
        window, band = self.work.planes.window, self.band
        shift = kx * window.dilation[1]
        if self.staged is None:
            place = band.first * window.strides[0] + row - window.padding[0], ramp(column + shift, self.work.plan.lanes)
            return tirx.BufferLoad(self.work.data, [*band.at, *place])
        stride = window.strides[1]
        if isinstance(kx, int):
            return self.staged.load(band.slot, row, shift % stride, column + shift // stride)
        return self.staged.load(band.slot, row, tirx.floormod(shift, stride), column + tirx.floordiv(shift, stride))

    def _store(self, registers: RegisterRows, y: Expr, vector: Expr) -> None:
        nest, plan = self.work.nest, self.work.plan
        if self.gathered is not None:
            for row in range(plan.rows):
                where = self.band.slot * self.work.out_size + (y + row) * self.work.planes.out_width
                nest.store(self.gathered, [ramp(where, plan.lanes)], registers.read(row, 0))
            return
        self.epilogue.store(
            nest, registers, (plan.rows, plan.vectors), registers.parts,
            lambda i, j, lane: [*self.band.at, self.band.first + y + i, self._column(vector + j) + lane],
        )  # fmt: skip


def _steps(extent: Expr, size: int) -> Expr:
    """Return how many tiles of `size` cover an extent, a number or an expression."""
    return -(-extent // size) if isinstance(extent, int) else tirx.ceildiv(extent, size)
