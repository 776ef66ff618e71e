"""How an attention with symbols is cut: what is fixed before, and the grid of a call."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tvm import tirx

from backends.cpu.kernels.attention.open_read import OpenChain
from backends.cpu.kernels.attention.plan import MAX_STREAMS
from backends.cpu.kernels.shared.block_products import RowUnits
from backends.cpu.kernels.shared.open_split import OpenSplit
from backends.cpu.kernels.shared.register_tile import RegisterTile, choose
from backends.cpu.machine import Machine
from backends.tensorir.emit import Expr, Nest, int64

_ROWS = 16
"""Rows of a block at most, whole vectors of them."""
_KEYS = 512
"""Keys of a block at most: 16 rows of scores are 33 KiB, most of L1."""
DOT_ROWS = 8
"""Rows up to which keys that lie row by row are not turned: with 16 both forms are as fast, with 4 turning takes 1.3 of
the time (12 of 300x64 on Zen 3)."""
SINGLE_ROWS = 3
"""Rows up to which each passes the values by itself, as a tile of four would take as long and read 8 panels of them."""
MAX_ROW_VECTORS = 8
"""Vectors of sums of a row by itself, enough to hide the latency of multiply-adds."""
_BUSY = 8
"""Tasks for each thread of which one more or less does not count."""


@dataclass(frozen=True)
class OpenPlan:
    """What is the same at all sizes.

    Attributes:
        rows, keys: Of a block at most.
        scores, values: The largest register tiles of the two products.
        threads: That share the tasks.
    """

    rows: int
    keys: int
    scores: RegisterTile
    values: RegisterTile
    threads: int

    @property
    def units(self) -> RowUnits:
        """Those of which blocks, and tiles of the first product, are made."""
        return RowUnits.of_four(self.scores.rows)

    @staticmethod
    def of(chain: OpenChain, machine: Machine, threads: int) -> OpenPlan:
        """Return the plan of blocks that stay in L1."""
        lanes, registers = machine.vector_lanes, machine.vector_registers
        scores = choose(_ROWS, 1, _KEYS // lanes, chain.depth, registers)
        values = choose(MAX_STREAMS, 1, -(-chain.channels // lanes), _KEYS, registers)
        return OpenPlan(_ROWS, _KEYS, scores, values, threads)

    def __str__(self) -> str:
        return f"up to {self.rows} rows by {self.keys} keys, {self.scores} {self.values}"


@dataclass(frozen=True)
class Grid:
    """The tasks of a call.

    Attributes:
        images: How many batches there are.
        blocks: Cuts of the units of rows of each.
        chunks: Cuts of these blocks, each of which is a task.
    """

    images: Expr
    blocks: OpenSplit
    chunks: OpenSplit

    @staticmethod
    def of(nest: Nest, chain: OpenChain, plan: OpenPlan) -> Grid:
        """Return the grid, its numbers named at the start of a call: as few cuts as keep all threads busy to the end,
        since each task packs its keys."""
        images = nest.keep("images", int64(prod(chain.batch)))
        blocks = plan.units.split(nest, chain.rows, plan.rows)
        wanted: Expr = int64(plan.threads)
        for cuts in reversed(range(1, plan.threads)):
            if plan.threads % cuts == 0:
                wanted = tirx.Select(tirx.floormod(images * cuts, plan.threads).equal(0), int64(cuts), wanted)
        few = images < _BUSY * plan.threads
        chunks = nest.keep("chunks", tirx.Select(few, tirx.min(wanted, blocks.count), int64(1)))
        return Grid(images, blocks, OpenSplit.into(nest, blocks.count, chunks))
