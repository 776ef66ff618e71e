"""How many rows of an attention pass through its two products at a time, and whether one kernel beats three."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from backends.cpu.anchors.blocking import BYTES_PER_CYCLE, TASK_CYCLES, choose_blocking, chunk_counts
from backends.cpu.anchors.extents import Extents
from backends.cpu.anchors.register_tile import RegisterTile, choose, total_cycles
from backends.cpu.anchors.split import Split
from fusion.context import Machine
from partition.chains import Chain, Judge

_MAX_ROWS = 48
"""Rows of a block beyond this gain nothing: no register tile is as high."""
_MIN_ROWS = 4
"""Rows below this leave the weights' loads to bound the products, but for results that have no more."""
_MAX_STREAMS = 6
"""Rows of weights that the second product reads at a time: 4x4x256x36 took 900 us with 6, 1000 to 1200 with 8 or 9;
12x128x64 took 251 with 6, 263 with 11 to 13."""
_VECTOR_CYCLES = 17
"""One core, a vector of a softmax in L1 (two Zen 4 vCPUs with AVX-512)."""
_L2_CYCLES = 4
"""More where scores and weights of a block do not fit L1."""
_LAUNCH_CYCLES = 8_000
"""A kernel's start on all threads and the wait for the last, about 2.5 us."""


@dataclass(frozen=True)
class AttentionPlan:
    """How one attention is computed.

    Attributes:
        rows: Of a block; the last block overlaps the one before.
        scores, values: Register tiles of the two products.
        chunks: Cuts of a batch's blocks, each of which is a parallel task.
        cycles: Estimate for the slowest thread.
    """

    rows: int
    scores: RegisterTile
    values: RegisterTile
    chunks: int
    cycles: float

    def __str__(self) -> str:
        return f"{self.rows} rows, {self.scores} {self.values} rows/{self.chunks}"


def padded(keys: int, lanes: int) -> int:
    """Return the distance between rows of scores, in elements: those of a register tile would share a few sets of L1,
    were it a power of two."""
    return -(-keys // lanes) * lanes + lanes


@cache
def plan_attention(chain: Chain, machine: Machine, threads: int) -> AttentionPlan | None:
    """Return the plan that is estimated to take the fewest cycles; None where no block of rows fits half of L2."""
    return min(plans(chain, machine, threads), key=lambda plan: plan.cycles, default=None)


def judge(machine: Machine, threads: int) -> Judge:
    """Return what says why an attention stays in three kernels."""

    def decline(chain: Chain) -> str:
        if not all((chain.batch, chain.rows, chain.depth, chain.keys, chain.channels)):
            return "the products are empty"
        plan = plan_attention(chain, machine, threads)
        if plan is None:
            return f"rows of {chain.keys} scores do not fit the cache"
        apart = _cycles_apart(chain, machine, threads)
        if plan.cycles >= apart:
            return f"{plan.cycles:.0f} cycles estimated in one kernel, {apart:.0f} in three"
        return ""

    return decline


def plans(chain: Chain, machine: Machine, threads: int) -> Iterator[AttentionPlan]:
    """Yield every number of rows whose scores fit half of L2, with every cut of the blocks into tasks."""
    lanes, registers = machine.vector_lanes, machine.vector_registers
    keys, channels = -(-chain.keys // lanes), -(-chain.channels // lanes)
    least = min(_MIN_ROWS, chain.rows)
    # One size for each number of blocks: the smallest, which overlaps least.
    for rows in sorted({Split.of(chain.rows, size).longest for size in range(least, min(chain.rows, _MAX_ROWS) + 1)}):
        if 2 * 4 * rows * padded(chain.keys, lanes) > machine.l2_bytes // 2:
            continue
        scores = choose(rows, 1, keys, chain.depth, registers)
        values = choose(min(rows, _MAX_STREAMS), 1, channels, chain.keys, registers)
        block = (
            total_cycles(scores, rows, 1, keys, chain.depth)
            + total_cycles(values, rows, 1, channels, chain.keys)
            + rows * keys * _VECTOR_CYCLES
        )
        if 2 * 4 * rows * padded(chain.keys, lanes) > machine.l1_bytes:
            block += rows * keys * _L2_CYCLES
        blocks = -(-chain.rows // rows)
        for chunks in chunk_counts(blocks, threads):
            tasks = chain.batch * chunks
            rounds = -(-tasks // threads)
            traffic = 4 * tasks * (chain.keys * (chain.depth + chain.channels)) / threads / BYTES_PER_CYCLE
            cycles = rounds * (Split(blocks, chunks).longest * block + TASK_CYCLES) + traffic
            yield AttentionPlan(rows, scores, values, chunks, cycles)


def _cycles_apart(chain: Chain, machine: Machine, threads: int) -> float:
    """Return the estimated cycles of a product, a softmax and a product, with the scores in the cache between them."""
    products = (
        choose_blocking(_extents(chain, channels, depth, machine), machine, threads).cycles
        for channels, depth in ((chain.keys, chain.depth), (chain.channels, chain.keys))
    )
    vectors = chain.batch * chain.rows * -(-chain.keys // machine.vector_lanes)
    return sum(products) + vectors * _VECTOR_CYCLES / threads + 2 * _LAUNCH_CYCLES


def _extents(chain: Chain, channels: int, depth: int, machine: Machine) -> Extents:
    return Extents(
        outer=chain.batch, groups=1, height=chain.rows, width=1, channels=channels, taps=(), depth=depth,
        lanes=machine.vector_lanes, input_bytes=4 * chain.rows * depth,
    )  # fmt: skip
