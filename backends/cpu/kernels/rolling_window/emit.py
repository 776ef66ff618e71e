"""A window, that of a depthwise convolution or of a pool, with the convolutions before and behind it as one kernel: the
inverted residuals of MobileNets, whose images between are often six times as wide as what comes in and goes out, and
the first layers of ResNets.

A task has a band of the result's rows and a chunk of its blocks of channels; its loops are those of `band`. Each band
computes the rows under its border once more than several kernels would; a chunk of the channels costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvm import tirx
from tvm.tirx import ForKind

from backends.cpu.kernels.rolling_window.band import BandWriter
from backends.cpu.kernels.rolling_window.plan import RollingPlan, projection_tile
from backends.cpu.kernels.rolling_window.read import ROLLING_WINDOW, RollingSizes, RollingStages
from backends.cpu.kernels.shared.chains.image_producer import Band
from backends.cpu.kernels.shared.contraction import Contraction, MicroKernel, emit_inside
from backends.cpu.kernels.shared.register_tile import RegisterTile
from backends.cpu.kernels.shared.split import Split
from backends.cpu.machine import Machine
from backends.tensorir.emit import Expr, Nest, int64
from backends.tensorir.result import Scheduled


def emit_rolling_window(func: tirx.PrimFunc, stages: RollingStages, machine: Machine, point: RollingPlan) -> Scheduled:
    """Return the loops of a point."""
    nest = Nest()
    _emit_tasks(nest, stages, point, machine)
    return Scheduled(func.with_body(nest.finish()), ROLLING_WINDOW, str(point))


def _emit_tasks(nest: Nest, stages: RollingStages, plan: RollingPlan, machine: Machine) -> None:
    """Add the parallel loop over bands and chunks."""
    sizes = stages.sizes
    blocks = -(-sizes.channels // (plan.tile.vectors * machine.vector_lanes))
    chunks, bands = Split(blocks, plan.chunks), Split(sizes.rows, plan.bands)
    tasks = sizes.batch * bands.count * chunks.count
    with nest.loop("task", tasks, ForKind.PARALLEL if tasks > 1 else ForKind.SERIAL) as task:
        chunk, image = tirx.floormod(task, chunks.count), tirx.floordiv(task, chunks.count * bands.count)
        band = tirx.floormod(tirx.floordiv(task, chunks.count), bands.count)
        first, rows = nest.bind("first_row", int64(bands.start(band))), int64(bands.size(band))
        here = Band(nest.bind("image", int64(image)), first, rows, bands.longest)
        cuts = _PlannedCuts(nest, stages.sizes, plan, machine)
        form = BandWriter.make(nest, stages, cuts, machine, here)
        if stages.projection is None:
            form.emit_blocks(chunks.start(chunk), chunks.size(chunk), first, rows)
        else:
            form.emit_rows(stages.projection, first, rows)


@dataclass(frozen=True)
class _PlannedCuts:
    """The rows of images whose sizes are known, as the plan cuts them."""

    nest: Nest
    sizes: RollingSizes
    plan: RollingPlan
    machine: Machine

    @property
    def tile(self) -> RegisterTile:
        """Pixels times vectors of the convolution before the window."""
        return self.plan.tile

    @property
    def columns(self) -> int:
        """Pixels of the window's result at a time, at most."""
        return self.plan.columns

    def make_row(self, kernel: MicroKernel, source: Expr, block: Expr, channels: int) -> None:
        """Emit a row of the image, for a block of channels."""
        kernel.emit_rows(source, 1, block, 1)

    def tiles(self) -> Iterator[tuple[Expr, int]]:
        """Yield the first pixel and how many for each tile of a row of the result, in its loop."""
        first = 0
        for columns, many in Split.of(self.sizes.columns, self.columns).sizes():
            with self.nest.loop("x_tile", many) as step:
                yield first + step * columns, columns
            first += columns * many

    def project(self, work: Contraction) -> None:
        """Emit the projection of a row."""
        emit_inside(self.nest, work, projection_tile(self.sizes, self.machine))
