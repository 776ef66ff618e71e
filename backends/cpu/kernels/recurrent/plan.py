"""Who computes what of a recurrence: whole directions and sequences, or a share of the hidden units of every step.

A thread that has a direction, or some sequences of a batch, to itself never waits for another. Where there are too few
of them, or the weights of a direction are too large for the L2 of one core, the threads share the hidden units, and
every phase of every step ends with a wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil

from backends.cpu.costs import L2_BYTES_PER_CYCLE, PREFETCH_STEPS, REGION_CYCLES, TASK_CYCLES
from backends.cpu.kernels.recurrent.costs import GATE_VECTOR_CYCLES, L2_SHARE, L3_BYTES_PER_CYCLE, UNHIDDEN_STREAM
from backends.cpu.kernels.recurrent.read import RecurrentKernel
from backends.cpu.kernels.shared.blocking import chunk_counts
from backends.cpu.kernels.shared.register_tile import RegisterTile, tiles, total_cycles
from backends.cpu.kernels.shared.split import Split
from backends.cpu.machine import Machine
from backends.tensorir.space import Space
from backends.tensorir.stages import dims_of


@dataclass(frozen=True)
class RecurrentPlan:
    """How the loops of a recurrence are cut.

    Attributes:
        tile: Sequences and vectors of hidden units that are multiplied in registers.
        row_chunks: Cuts of the sequences; each chunk of each direction is a task that goes through all steps.
        shares: Cuts of the hidden units between tasks that go through one phase of a step; 1 where there are none.
        cycles: Estimate for the slowest thread.
    """

    tile: RegisterTile
    row_chunks: int
    shares: int
    cycles: float = 0.0

    def axes(self) -> dict[str, int]:
        return {**self.tile.axes("tile"), "row_chunks": self.row_chunks, "shares": self.shares}

    def longest_task(self, batch: int) -> int:
        """Return how many of `batch` sequences the largest task has at most."""
        tiles_of_rows = Split.of(batch, self.tile.height)
        return min(batch, Split(tiles_of_rows.count, self.row_chunks).longest * tiles_of_rows.longest)

    def __str__(self) -> str:
        return f"{self.tile} rows/{self.row_chunks} units/{self.shares}"


@dataclass(frozen=True)
class RecurrentDemand:
    """What the plan depends on: sizes, and how many phases a step has, each of which needs the one before."""

    directions: int
    gates: int
    phases: int
    steps: int
    batch: int
    hidden: int

    @staticmethod
    def of(kernel: RecurrentKernel, unknown_steps: int = 0) -> RecurrentDemand:
        """Return what `kernel` demands, for one sequence and `unknown_steps` where only a call knows how many there
        are."""
        recurrence = kernel.recurrence
        steps, directions, batch, hidden = dims_of(kernel.parameters["sequence"])
        return RecurrentDemand(
            directions=directions,
            gates=recurrence.gates,
            phases=len(recurrence.phases()),
            steps=steps if isinstance(steps, int) else unknown_steps,
            batch=batch if isinstance(batch, int) else 1,
            hidden=hidden,
        )


def recurrent_space(kernel: RecurrentKernel, machine: Machine, threads: int) -> Space[RecurrentPlan]:
    """Return every register tile with every cut into tasks."""
    demand = RecurrentDemand.of(kernel)
    vectors = -(-demand.hidden // machine.vector_lanes)

    found = list(dict.fromkeys(tiles(demand.batch, 1, vectors, machine.vector_registers)))
    # Prefetches run ahead and push other lines out. LSTM of 128, us a step: 6 KiB ahead 2.53, 9 2.64, 12 2.69.
    calm = [tile for tile in found if PREFETCH_STEPS * 4 * machine.vector_lanes * tile.vectors <= machine.l1_bytes // 4]

    def cut(some: list[RegisterTile]) -> Iterator[RecurrentPlan]:
        return (plan for tile in some for plan in cuts(demand, tile, machine, threads))

    return Space(min(cut(calm), key=lambda plan: plan.cycles), lambda: cut(found))


def cuts(demand: RecurrentDemand, tile: RegisterTile, machine: Machine, threads: int) -> Iterator[RecurrentPlan]:
    """Yield the cuts into tasks worth looking at."""
    vectors = -(-demand.hidden // machine.vector_lanes)
    panels = -(-vectors // tile.vectors)
    for chunks in chunk_counts(Split.of(demand.batch, tile.height).count, threads):
        plan = RecurrentPlan(tile, chunks, 1)
        tasks = demand.directions * chunks
        rounds = -(-tasks // threads)
        step = _step(demand, tile, machine=machine, rows=plan.longest_task(demand.batch), vectors=vectors, sets=1)
        region = REGION_CYCLES if tasks > 1 else 0
        yield replace(plan, cycles=region + rounds * (demand.steps * step + TASK_CYCLES))
    for shares in chunk_counts(panels, threads):
        if shares > 1:
            rounds = -(-demand.directions * shares // threads)
            mine = min(vectors, Split(panels, shares).longest * tile.vectors)
            step = rounds * (
                _step(demand, tile, machine=machine, rows=demand.batch, vectors=mine, sets=rounds) + TASK_CYCLES
            )
            yield RecurrentPlan(tile, 1, shares, demand.steps * (step + demand.phases * REGION_CYCLES))


def steps_to_share(demand: RecurrentDemand, plan: RecurrentPlan, machine: Machine, threads: int) -> int:
    """Return how many steps it takes at least until the tasks of `plan` end before a single one does; 0 where they are
    never one."""
    if plan.shares > 1 or demand.directions > 1:
        return 0
    rounds = -(-plan.row_chunks // threads)
    vectors = -(-demand.hidden // machine.vector_lanes)
    apart, one = (
        _step(demand, plan.tile, machine=machine, rows=rows, vectors=vectors, sets=1)
        for rows in (plan.longest_task(demand.batch), demand.batch)
    )
    return ceil((REGION_CYCLES + (rounds - 1) * TASK_CYCLES) / max(one - rounds * apart, 1))


def _step(demand: RecurrentDemand, tile: RegisterTile, machine: Machine, rows: int, vectors: int, sets: int) -> float:
    """Return the cycles of a task in a step: `rows` sequences, `vectors` of hidden units; its thread goes through
    `sets` such sets of weights in turn."""
    products = demand.gates * total_cycles(tile, rows, 1, vectors, demand.hidden)
    column = 4 * machine.vector_lanes * demand.hidden
    weights = demand.gates * vectors * column
    near = sets * weights <= L2_SHARE * machine.l2_bytes
    stream = weights / (L2_BYTES_PER_CYCLE if near else L3_BYTES_PER_CYCLE)
    if tile.vectors * column > machine.l1_bytes // 2:  # every row tile reads a panel from L2 again
        stream += (Split.of(rows, tile.height).count - 1) * weights / L2_BYTES_PER_CYCLE
    overlapped = max(products, stream) + UNHIDDEN_STREAM * min(products, stream)
    return overlapped + rows * demand.gates * vectors * GATE_VECTOR_CYCLES
