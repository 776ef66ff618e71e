"""A recurrence of which only a call knows how many sequences and steps it has: the loops of `loops`, cut at the call.

    row chunks, shares = look_up(sequences)     a table that the estimate filled for some numbers of sequences
    tiles of a task's sequences                 a table of heights, `row_tiles`, with a body for each
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass
from functools import partial

from tvm import tirx
from tvm.tirx import ForKind

from backends.cpu.kernels.recurrent.open_plan import OpenRecurrentPlan
from backends.cpu.kernels.recurrent.step import Steps
from backends.cpu.kernels.shared.contraction import MicroKernel
from backends.cpu.kernels.shared.open_panels import chunk_of
from backends.cpu.kernels.shared.row_tiles import RowTiles
from backends.tensorir.emit import Expr, Nest, int64

Emit = Callable[[], None]


def emit_open_loops(steps: Steps, plan: OpenRecurrentPlan) -> None:
    """Add the loops of a plan."""
    nest, batch = steps.nest, steps.nest.settle("sequences", int64(steps.sizes.batch))
    shared, shares = partial(_shared, steps, plan, batch), plan.look_up(batch, lambda cut: cut.shares)
    many = partial(_alone, steps, plan, batch, ForKind.PARALLEL)
    one = partial(_alone, steps, plan.as_one_task(), batch, ForKind.SERIAL)
    is_short = int64(steps.sizes.steps) < plan.look_up(batch, lambda cut: cut.steps)
    alone = partial(_either, nest, plan.is_one_task, is_short, one, many)
    _either(nest, plan.shares_units, shares > 1, shared, alone)


def _either(nest: Nest, met: Set[bool], condition: Expr, then: Emit, otherwise: Emit) -> None:
    """Add what is done where `condition`, of which `met` are the values that there are, holds and where not."""
    if len(met) == 1:
        (then if True in met else otherwise)()
    else:
        nest.choose(condition, then, otherwise)


@dataclass(frozen=True)
class _RowsOfTable:
    """Sequences in the tiles of a table."""

    nest: Nest
    tiles: RowTiles

    @property
    def first(self) -> Expr:
        """The first sequence."""
        return self.tiles.first

    @property
    def count(self) -> Expr:
        """How many sequences there are."""
        return self.tiles.rows

    def multiply(self, kernel: MicroKernel, first_panel: Expr, panels: Expr) -> None:
        """Emit their products with `panels` panels of weights: a panel stays in L1 for all of them."""
        with self.nest.loop("panel", panels) as panel, self.nest.loop("y_tile", self.tiles.count) as step:
            height, y = self.tiles.tile(self.nest, step)
            for rows in self.tiles.bodies(self.nest, height):
                pixels = [(y + i, int64(0)) for i in range(rows)]
                kernel.emit_panels(first_panel + panel, 1, pixels, (rows, 1))


def _alone(steps: Steps, plan: OpenRecurrentPlan, batch: Expr, kind: ForKind) -> None:
    nest, (times, directions, symbol, _) = steps.nest, steps.sizes
    chunks = nest.settle("chunks", plan.look_up(batch, lambda cut: cut.row_chunks))
    longest = nest.settle("longest", plan.longest_task(batch))
    with nest.loop("task", directions * chunks, kind) as index:
        direction = nest.settle("direction", tirx.truncdiv(index, chunks))
        first, end = chunk_of(nest, "row", tirx.truncmod(index, chunks), batch, chunks)
        rows = _RowsOfTable(nest, RowTiles.of(nest, plan.table, first, end - first))
        # TVM allocates where nothing is known but the symbols.
        room = plan.longest_task(int64(symbol)), longest
        task = steps.task(direction, rows, (int64(0), steps.all_panels), room)
        steps.start(direction, rows.first, rows.count)
        with nest.loop("step", times) as step:
            for phase in steps.recurrence.phases():
                steps.phase(task, phase, step)


def _shared(steps: Steps, plan: OpenRecurrentPlan, batch: Expr) -> None:
    nest, (times, directions, symbol, _) = steps.nest, steps.sizes
    shares = nest.settle("shares", plan.look_up(batch, lambda cut: cut.shares))
    with nest.loop("direction", directions) as direction:
        steps.start(direction, int64(0), batch)
    with nest.loop("step", times) as step:
        for phase in steps.recurrence.phases():
            with nest.loop("task", directions * shares, ForKind.PARALLEL) as index:
                direction = nest.settle("direction", tirx.truncdiv(index, shares))
                first, end = chunk_of(nest, "panel", tirx.truncmod(index, shares), int64(steps.all_panels), shares)
                rows = _RowsOfTable(nest, RowTiles.of(nest, plan.table, int64(0), batch))
                room = tirx.max(symbol, int64(1)), batch
                steps.phase(steps.task(direction, rows, (first, end - first), room), phase, step)
