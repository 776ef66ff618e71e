"""Who computes what of a recurrence of which only a call knows how many sequences and steps it has: the choice of
`plan`, as a table over numbers of sequences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import groupby

from tvm import tirx

from backends.cpu.kernels.recurrent.plan import RecurrentDemand, RecurrentPlan, cuts, steps_to_share
from backends.cpu.kernels.recurrent.read import RecurrentKernel
from backends.cpu.kernels.recurrent.step import extents_of_sequence
from backends.cpu.kernels.shared.register_tile import RegisterTile
from backends.cpu.kernels.shared.row_tiles import RowTable, look_up
from backends.cpu.machine import Machine
from backends.tensorir.emit import Expr, int64
from backends.tensorir.stages import dims_of

_PROBES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256)
"""Numbers of sequences for which a cut is chosen."""

_STEPS = 64
"""So many steps a recurrence has for which the cut is chosen, if only the call knows."""

_WORTH = 1.25
"""How much longer it has to take by estimate, where threads have sequences to themselves, before they share hidden
units: the wait at the end of each step is the least certain part of it. Steps of 16 sequences and 128 units, which it
took to be as long, took 2.3 times as long shared."""

_NEVER = 2**31
"""More steps than there are."""


@dataclass(frozen=True)
class OpenCut:
    """The tasks of a number of sequences.

    Attributes:
        batch: The number.
        row_chunks: Cuts of the sequences.
        shares: Cuts of the hidden units; only one of both is more than 1.
        steps: With fewer of them all is one task.
    """

    batch: int
    row_chunks: int
    shares: int
    steps: int


@dataclass(frozen=True)
class OpenRecurrentPlan:
    """How the loops of a recurrence of any number of sequences are cut.

    Attributes:
        table: The register tiles.
        cuts: Those of some numbers of sequences, in order; others are cut as the last of these that is no more.
    """

    table: RowTable
    cuts: tuple[OpenCut, ...]

    @staticmethod
    def of(kernel: RecurrentKernel, machine: Machine, threads: int) -> OpenRecurrentPlan:
        """Return the best cuts by estimate."""
        steps, _, batch, _ = dims_of(kernel.parameters["sequence"])
        demand = RecurrentDemand.of(kernel, unknown_steps=_STEPS)
        table = RowTable.choose([extents_of_sequence(demand.hidden, machine.vector_lanes)], machine)
        at = [replace(demand, batch=each) for each in ([batch] if isinstance(batch, int) else _PROBES)]
        plans = [_best(each, table.tile, machine, threads) for each in at]

        def least(each: RecurrentDemand, plan: RecurrentPlan) -> int:
            if plan.shares * plan.row_chunks * demand.directions == 1 or threads == 1:
                return _NEVER
            return 0 if isinstance(steps, int) else steps_to_share(each, plan, machine, threads)

        found = zip(at, plans, strict=True)
        return OpenRecurrentPlan(table, tuple(OpenCut(e.batch, p.row_chunks, p.shares, least(e, p)) for e, p in found))

    @property
    def shares_units(self) -> set[bool]:
        """Whether threads share hidden units, for all numbers of sequences."""
        return {cut.shares > 1 for cut in self.cuts}

    @property
    def is_one_task(self) -> set[bool]:
        """Whether all is one task, for all numbers of sequences and steps whose hidden units are not shared."""
        alone = [cut for cut in self.cuts if cut.shares == 1]
        return {is_one for cut in alone for is_one in (True, False) if cut.steps not in ((0,) if is_one else (_NEVER,))}

    def look_up(self, batch: Expr, number: Callable[[OpenCut], int]) -> Expr:
        """Return, as an expression, this number of the cut of so many sequences."""
        return look_up(batch, [(cut.batch, number(cut)) for cut in self.cuts])

    def longest_task(self, batch: Expr) -> Expr:
        """Return how many sequences the largest task has at most, and no less than one."""
        chunks = self.look_up(batch, lambda cut: cut.row_chunks)
        return tirx.max(tirx.truncdiv(batch + (chunks - 1), chunks), int64(1))

    def as_one_task(self) -> OpenRecurrentPlan:
        """Return the plan of one task."""
        return OpenRecurrentPlan(self.table, (OpenCut(1, 1, 1, _NEVER),))

    def __str__(self) -> str:
        runs = groupby(self.cuts, key=lambda cut: f"rows/{cut.row_chunks} units/{cut.shares}")
        (first, _), *later = [(text, next(run).batch) for text, run in runs]
        later_ones = "".join(f", {text} from {batch} sequences" for text, batch in later)
        return f"open sequences: {self.table}; {first}{later_ones}"


def _best(demand: RecurrentDemand, tallest: RegisterTile, machine: Machine, threads: int) -> RecurrentPlan:
    """Return the best cuts of so many sequences; few of them are also shared out in lower tiles."""
    heights = {min(-(-demand.batch // parts), tallest.height) for parts in (1, 2, threads)}
    tiles = [replace(tallest, height=height) for height in sorted(heights)]
    found = [cut for tile in tiles for cut in cuts(demand, tile, machine, threads)]
    return min(found, key=lambda cut: cut.cycles * (_WORTH if cut.shares > 1 else 1.0))
