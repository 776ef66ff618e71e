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

from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Range, Var
from tvm.sym import Analyzer
from tvm.tirx import ForKind

from backends.cpu.kernels.planar_window.band_tiles import BandTiles
from backends.cpu.kernels.planar_window.lower import PLANAR
from backends.cpu.kernels.planar_window.plan import PlanarPlan, steps
from backends.cpu.kernels.planar_window.read import PlanarWindow
from backends.cpu.kernels.planar_window.staged_rows import StagedBand, StagedRows
from backends.cpu.kernels.shared.epilogue import Epilogue
from backends.cpu.kernels.shared.split import Split
from backends.cpu.machine import Machine
from backends.tensorir.emit import Expr, Nest
from backends.tensorir.result import Scheduled
from backends.tensorir.roles import Roles
from backends.tensorir.vectors import fitting_lanes


def emit_planar(func: tirx.PrimFunc, roles: Roles, machine: Machine, point: PlanarPlan) -> Scheduled:
    """Return the vectorised form of `func`."""
    nest = Nest()
    _TaskWriter(nest, PlanarWindow.of(roles), point, roles, machine).emit()
    return Scheduled(func.with_body(nest.finish()), PLANAR, str(point))


@dataclass(frozen=True)
class _TaskWriter:
    """Writes the tasks of a plan, each of which has a share of the planes and bands."""

    nest: Nest
    operator: PlanarWindow
    plan: PlanarPlan
    roles: Roles
    machine: Machine

    def emit(self) -> None:
        """Emit the tasks."""
        nest, planes, plan = self.nest, self.operator.planes, self.plan
        units = planes.count * plan.bands.count
        shares = Split(units, min(units, plan.threads))
        with nest.loop("task", shares.count, ForKind.PARALLEL if shares.count > 1 else ForKind.SERIAL) as task:
            staged = StagedRows.allocate(nest, self.operator, plan, plan.line, self.machine) if plan.line else None
            gathered = nest.allocate("gathered", (plan.block * planes.out_size + plan.lanes,)) if plan.narrow else None
            epilogue = Epilogue.prepare(nest, self.roles.outputs, plan.rows * plan.vectors * plan.lanes)
            many = shares.size(task)
            with nest.loop("block", steps(many, plan.block)) as block:
                first = nest.bind("first_unit", shares.start(task) + block * plan.block)
                here = tirx.min(plan.block, many - block * plan.block) if plan.block > 1 else 1
                if staged:
                    with nest.loop("slot", here) as slot:
                        staged.fill(self._band(first + slot, slot))
                with nest.loop("slot", here) as slot:
                    band = self._band(first + slot, slot)
                    tiles = BandTiles(
                        nest, self.operator, plan, staged=staged, band=band, epilogue=epilogue, gathered=gathered
                    )
                    tiles.emit()
                if gathered is not None:
                    with nest.loop("slot", here) as slot:
                        self._store_plane(self._band(first + slot, slot), gathered)

    def _band(self, unit: Expr, slot: Expr) -> StagedBand:
        nest, bands, channels = self.nest, self.plan.bands, self.roles.shape[1]
        unit = nest.bind("unit", unit)
        plane, band = tirx.floordiv(unit, bands.count), tirx.floormod(unit, bands.count)
        n, c = nest.bind("n", tirx.floordiv(plane, channels)), nest.bind("c", tirx.floormod(plane, channels))
        return StagedBand((n, c), nest.bind("first_row", bands.start(band)), bands.size(band), slot)

    def _store_plane(self, band: StagedBand, gathered: Var) -> None:
        """Apply the epilogue to a plane in scratch, as if it were one row."""
        nest, planes = self.nest, self.operator.planes
        lanes = fitting_lanes(planes.out_size, self.machine.vector_lanes)
        with nest.loop("v", steps(planes.out_size, lanes)) as v:
            start = nest.bind("start", tirx.min(v * lanes, planes.out_size - lanes))
            lane = Var("lane", "int64")
            analyzer = Analyzer()
            analyzer.bind(lane, Range(0, lanes))
            place, width = start + lane, planes.out_width
            where = [*band.at, tirx.floordiv(place, width), tirx.floormod(place, width)]
            for output in self.roles.outputs:
                indices, value = output.at(where, tirx.BufferLoad(gathered, [band.slot * planes.out_size + place]))
                store = tirx.BufferStore(output.buffer, value, [analyzer.simplify(index) for index in indices])
                nest.add_loop(lane, lanes, ForKind.VECTORIZED if lanes > 1 else ForKind.SERIAL, [store])
