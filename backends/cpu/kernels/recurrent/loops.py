"""RNN, GRU and LSTM over a whole sequence as one kernel: its loops, where all sizes are known.

The loops where a task has a direction, or some of its sequences, to itself:

    parallel task: (direction, chunk of the sequences)
      for step
        for phase                                        one, but for a GRU that resets before its product
          for gate, panel of hidden units                sums = state x weights, the micro-kernel of `contraction`
          for sequence, vector of hidden units           states = the equations, on sums and projected inputs

and where threads share the hidden units (`plan` decides):

    for step
      for phase
        parallel task: (direction, share of the panels)
          ...

The state of a step is in one half of a buffer, that of the step before in the other, so that no unit sees a new one too
early.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx
from tvm.tirx import ForKind

from backends.cpu.kernels.recurrent.plan import RecurrentPlan
from backends.cpu.kernels.recurrent.step import Steps
from backends.cpu.kernels.shared.contraction import MicroKernel
from backends.cpu.kernels.shared.split import Split
from backends.tensorir.emit import Expr, int64


def emit_loops(steps: Steps, plan: RecurrentPlan) -> None:
    """Add the loops of a plan."""
    if plan.shares > 1:
        _shared(steps, plan)
    else:
        _alone(steps, plan)


@dataclass(frozen=True)
class _RowsOfSplit:
    """Some of the register tiles of all sequences.

    Attributes:
        split: The tiles of all.
        first_tile, tiles: Which of these.
    """

    split: Split
    first_tile: Expr
    tiles: Expr

    @property
    def first(self) -> Expr:
        """The first sequence."""
        return self.split.start(self.first_tile)

    @property
    def count(self) -> Expr:
        """How many sequences there are."""
        return self.split.start(self.first_tile + self.tiles) - self.first

    def multiply(self, kernel: MicroKernel, first_panel: Expr, panels: Expr) -> None:
        """Emit their products with `panels` panels of weights."""
        kernel.emit(first_panel, panels, self.split, self.first_tile, self.tiles)


def _alone(steps: Steps, plan: RecurrentPlan) -> None:
    nest, (times, directions, batch, _) = steps.nest, steps.sizes
    split, longest = Split.of(batch, plan.tile.height), plan.longest_task(batch)
    chunks = Split(split.count, plan.row_chunks)
    tasks = directions * chunks.count
    with nest.loop("task", tasks, ForKind.PARALLEL if tasks > 1 else ForKind.SERIAL) as index:
        chunk, direction = tirx.floormod(index, chunks.count), tirx.floordiv(index, chunks.count)
        first = nest.bind("first_tile", int64(chunks.start(chunk)))
        rows = _RowsOfSplit(split, first, chunks.size(chunk))
        task = steps.task(direction, rows, (int64(0), steps.all_panels), (longest, longest))
        steps.start(direction, rows.first, rows.count)
        with nest.loop("step", times) as step:
            for phase in steps.recurrence.phases():
                steps.phase(task, phase, step)


def _shared(steps: Steps, plan: RecurrentPlan) -> None:
    nest, (times, directions, batch, _) = steps.nest, steps.sizes
    split, shares = Split.of(batch, plan.tile.height), Split(steps.all_panels, plan.shares)
    rows, longest = _RowsOfSplit(split, int64(0), split.count), plan.longest_task(batch)
    with nest.loop("direction", directions) as direction:
        steps.start(direction, int64(0), batch)
    with nest.loop("step", times) as step:
        for phase in steps.recurrence.phases():
            with nest.loop("task", directions * shares.count, ForKind.PARALLEL) as index:
                share, direction = tirx.floormod(index, shares.count), tirx.floordiv(index, shares.count)
                first = nest.bind("first_panel", int64(shares.start(share)))
                task = steps.task(direction, rows, (first, shares.size(share)), (longest, longest))
                steps.phase(task, phase, step)
