"""The register tiles of a band of output rows: vectors along the rows, which share the input rows they load."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Var

from backends.cpu.kernels.planar_window.plan import PlanarPlan, steps
from backends.cpu.kernels.planar_window.read import PlanarWindow
from backends.cpu.kernels.planar_window.staged_rows import StagedBand, StagedRows
from backends.cpu.kernels.shared.epilogue import Epilogue, RegisterRows
from backends.tensorir.emit import Expr, Nest, ramp, splat

_UNROLLED_STEPS = 512  # of multiply-adds in one register tile; beyond it the window's columns are a loop


@dataclass(frozen=True)
class BandTiles:
    """Writes the register tiles of a band.

    Attributes:
        staged: Where the rows under it are; None where taps read the image in place.
        epilogue: What is done with a tile.
        gathered: Where rows shorter than a vector go, without gaps, before that is done.
    """

    nest: Nest
    operator: PlanarWindow
    plan: PlanarPlan
    staged: StagedRows | None
    band: StagedBand
    epilogue: Epilogue
    gathered: Var | None

    def emit(self) -> None:
        """Emit the tiles; the last one of rows ends where the band ends, as does the last one of vectors."""
        nest, plan, rows = self.nest, self.plan, self.band.rows
        with nest.loop("y_tile", steps(rows, plan.rows)) as i:
            y = nest.bind("y", tirx.min(i * plan.rows, rows - plan.rows))
            with nest.loop("x_tile", steps(plan.row_vectors, plan.vectors)) as j:
                self._tile(y, nest.bind("vector", tirx.min(j * plan.vectors, plan.row_vectors - plan.vectors)))

    def _column(self, vector: Expr) -> Expr:
        plan, width = self.plan, self.operator.planes.out_width
        column = vector * plan.lanes
        return column if width % plan.lanes == 0 or plan.narrow else tirx.min(column, width - plan.lanes)

    def _tile(self, y: Expr, vector: Expr) -> None:
        nest, plan, planes = self.nest, self.plan, self.operator.planes
        registers = RegisterRows(nest, plan.rows * plan.vectors, [(0, plan.lanes)])
        if self.operator.takes_max:
            for row in range(registers.rows):
                registers.write(row, 0, splat(self.operator.identity, plan.lanes))
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
        nest, plan, planes = self.nest, self.plan, self.operator.planes
        weights = [self._weight(ky, kx) for ky in range(planes.window.kernel[0])]
        for row, readers in planes.taps(plan.rows).items():
            for i, column in enumerate(columns):
                value = nest.bind("v", self._load(y * planes.window.strides[0] + row, kx, column))
                for out, ky in readers:
                    self._combine(registers, out * plan.vectors + i, value, weights[ky])

    def _combine(self, registers: RegisterRows, row: int, value: Expr, weight: Expr | None) -> None:
        if self.operator.takes_max:
            registers.write(row, 0, tirx.max(registers.read(row, 0), value))
        else:
            registers.accumulate(row, 0, value if weight is None else value * weight)

    def _weight(self, ky: int, kx: Expr) -> Expr | None:
        if self.operator.weight is None:
            return None
        load = tirx.BufferLoad(self.operator.weight, [self.band.at[1], ky, kx])
        return self.nest.bind("w", splat(load, self.plan.lanes))

    def _load(self, row: Expr, kx: Expr, column: Expr) -> Expr:
        """Return the vector under a tap; `row` counts from the first row under the band, padding included."""
        window, band = self.operator.planes.window, self.band
        shift = kx * window.dilation[1]
        if self.staged is None:
            place = band.first * window.strides[0] + row - window.padding[0], ramp(column + shift, self.plan.lanes)
            return tirx.BufferLoad(self.operator.data, [*band.at, *place])
        stride = window.strides[1]
        if isinstance(kx, int):
            return self.staged.load(band.slot, row, shift % stride, column + shift // stride)
        return self.staged.load(band.slot, row, tirx.floormod(shift, stride), column + tirx.floordiv(shift, stride))

    def _store(self, registers: RegisterRows, y: Expr, vector: Expr) -> None:
        nest, plan = self.nest, self.plan
        if self.gathered is not None:
            for row in range(plan.rows):
                where = self.band.slot * self.operator.planes.out_size + (y + row) * self.operator.planes.out_width
                nest.store(self.gathered, [ramp(where, plan.lanes)], registers.read(row, 0))
            return
        self.epilogue.store(
            nest, registers, (plan.rows, plan.vectors), registers.parts,
            lambda i, j, lane: [*self.band.at, self.band.first + y + i, self._column(vector + j) + lane],
        )  # fmt: skip
