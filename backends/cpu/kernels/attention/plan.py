"""In which form two products of batches are computed: how many rows and keys pass through both at a time, and whether
one kernel beats two, or three with a softmax between."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import cache, partial
from itertools import product
from math import log2

from backends.cpu.costs import (
    LAUNCH_CYCLES,
    LOADS_PER_CYCLE,
    MEMORY_BYTES_PER_CYCLE,
    PACK_CYCLES,
    TASK_CYCLES,
    WEIGHTS_WAITED_FOR,
)
from backends.cpu.kernels.attention.costs import (
    DOT_FOLD_CYCLES,
    SHARED_SETS_ROW_CYCLES,
    SOFTMAX_L2_CYCLES,
    SOFTMAX_ROW_CYCLES,
    SOFTMAX_VECTOR_CYCLES,
    TRANSPOSE_CYCLES,
    TURN_CYCLES,
)
from backends.cpu.kernels.attention.read import AttentionStages, Chain, operand
from backends.cpu.kernels.attention.softmax import find_softmax
from backends.cpu.kernels.shared.blocking import choose_blocking, chunk_counts
from backends.cpu.kernels.shared.extents import Extents
from backends.cpu.kernels.shared.register_tile import RegisterTile, tiles, total_cycles
from backends.cpu.kernels.shared.split import Split
from backends.cpu.kernels.shared.weights_in_place import shares_sets
from backends.cpu.machine import Machine
from backends.tensorir.estimate import Estimate
from backends.tensorir.space import Space
from fusion.declined import Declined

_MAX_ROWS = 48
"""Rows of a block of whole rows beyond this gain nothing: no register tile is as high."""
_MIN_ROWS = 4
"""Rows below this leave the weights' loads to bound the products, but for results that have no more."""
_ONLINE_ROWS = (14, 28, 56, 112, 168, 224)
"""Rows of a block that keys and values pass by in blocks: whole register tiles of AVX-512."""
_ONLINE_KEYS = (64, 128, 256, 512)
"""Keys of a block."""
MAX_STREAMS = 6
"""Rows of weights that the second product reads at a time: 4x4x256x36 took 900 us with 6, 1000 to 1200 with 8 or 9;
12x128x64 took 251 with 6, 263 with 11 to 13."""


@dataclass(frozen=True)
class AttentionDemand:
    """All that the choice depends on.

    Attributes:
        chain: The sizes.
        buffers: How many rows of scores and weights a row needs at a time.
        between: Whether a softmax or other row-wise work stands between the products.
        unread: Why the keys cannot be cut into blocks; "" where they can.
        turned: Elements of keys and values of one batch that each task copies transposed.
        keys_by_row: Whether the elements of a key lie together; such keys are among those, or have no copy in the form
            of dot products.
        key_pitch: Bytes between the rows of the keys as the first product reads them; 0 where each task has copied
            them in any case.
    """

    chain: Chain
    buffers: int = 2
    between: bool = True
    unread: str = ""
    turned: int = 0
    keys_by_row: bool = False
    key_pitch: int = 0

    @staticmethod
    def of(stages: AttentionStages) -> AttentionDemand:
        """Return what `stages` demand."""
        try:
            find_softmax(stages)
            unread = ""
        except Declined as reason:
            unread = str(reason)
        rights = (operand(anchor, 1) for anchor in (stages.scores, stages.values))
        turned = sum(side.step.extent * side.place.extent for side in rights if not side.is_contiguous(side.place))
        between, keys = bool(stages.rows), operand(stages.scores, 1)
        pitch = 4 * keys.distance(keys.step) if keys.is_contiguous(keys.place) else 0
        return AttentionDemand(
            chain=stages.chain,
            buffers=len(stages.entering) + between,
            between=between,
            unread=unread,
            turned=turned,
            keys_by_row=keys.is_contiguous(keys.step) and not pitch,
            key_pitch=pitch,
        )

    @property
    def kernels(self) -> int:
        """How many there are where nothing is joined."""
        return 3 if self.between else 2


@dataclass(frozen=True)
class AttentionPlan:
    """How one attention is computed.

    Attributes:
        rows: Of a block; the last block overlaps the one before.
        keys: Of a block; where they are all, the form is that of whole rows.
        scores, values: Register tiles of the two products.
        chunks: Cuts of a batch's blocks, each of which is a parallel task.
        packed: Whether each task copies the keys that it would read where they lie, a panel of them together.
        dots: Whether scores are dot products with keys that lie row by row, summed in a vector each.
        cycles: Estimate for the slowest thread.
    """

    rows: int
    keys: int
    scores: RegisterTile
    values: RegisterTile
    chunks: int
    packed: bool
    cycles: float
    dots: bool = False

    def axes(self) -> dict[str, int]:
        tiles_of_both = {**self.scores.axes("scores"), **self.values.axes("values")}
        form = 2 if self.dots else int(self.packed)
        return {"rows": self.rows, "keys": self.keys, "chunks": self.chunks, "packed": form, **tiles_of_both}

    def __str__(self) -> str:
        form = ", keys packed" if self.packed else ", dot products" if self.dots else ""
        return f"{self.rows} rows by {self.keys} keys, {self.scores} {self.values} rows/{self.chunks}{form}"


def padded(keys: int, lanes: int) -> int:
    """Return the distance between rows of scores, in elements: those of a register tile would share a few sets of L1,
    were it a power of two."""
    return -(-keys // lanes) * lanes + lanes


def attention_space(demand: AttentionDemand, machine: Machine, threads: int) -> Space[AttentionPlan]:
    """Return the blocks of rows, and of keys where the rows are a softmax, with every cut into tasks.

    Raises:
        Declined: None fits the cache.
    """
    default = plan_attention(demand, machine, threads)
    if default is None:
        raise Declined("a block of rows does not fit the cache")
    return Space(default, lambda: plans(demand, machine, threads), partial(_features, demand, machine, threads))


def _features(demand: AttentionDemand, machine: Machine, threads: int, plan: AttentionPlan) -> Mapping[str, float]:
    """Return numbers of a plan that a cost model learns from: sizes as logarithms, footprints as those of their share
    of a cache."""
    chain, blocks = demand.chain, Split.of(demand.chain.rows, plan.rows).count
    tasks, longest = chain.batch * plan.chunks, Split(blocks, plan.chunks).longest
    held = 4 * demand.buffers * plan.rows * padded(plan.keys, machine.vector_lanes)
    stream = 4 * chain.keys * (chain.depth + chain.channels)
    return {
        "heads": log2(chain.batch), "all rows": log2(chain.rows), "all keys": log2(chain.keys),
        "depth": log2(chain.depth), "channels": log2(chain.channels),
        "blocks": log2(blocks), "key blocks": chain.keys / plan.keys,
        "computed again": blocks * plan.rows / chain.rows, "last keys": chain.keys % plan.keys / plan.keys,
        "cut keys": chain.keys % machine.vector_lanes / machine.vector_lanes, "tasks": log2(tasks),
        "rounds": -(-tasks // threads), "imbalance": -(-tasks // threads) * longest * threads / (blocks * chain.batch),
        "blocks a task": longest, "turned": demand.turned - plan.dots * chain.keys * chain.depth,
        "key pitch": log2(1 + demand.key_pitch),
        "score sums": plan.scores.rows * plan.scores.vectors, "value sums": plan.values.rows * plan.values.vectors,
        "scores of L1": log2(held / machine.l1_bytes), "scores of L2": log2(held / machine.l2_bytes),
        "stream of L2": log2(stream / machine.l2_bytes),
        "keys of L1": log2(4 * plan.keys * chain.depth / machine.l1_bytes),
    }  # fmt: skip


@cache
def plan_attention(demand: AttentionDemand, machine: Machine, threads: int) -> AttentionPlan | None:
    """Return the plan that is estimated to take the fewest cycles; None where no block of rows fits half of L2."""
    return min(plans(demand, machine, threads), key=lambda plan: plan.cycles, default=None)


def why_not_fused(demand: AttentionDemand, machine: Machine, threads: int) -> str:
    """Return why three kernels are the faster form; "" where one is."""
    chain = demand.chain
    if not all((chain.batch, chain.rows, chain.depth, chain.keys, chain.channels)):
        return "the products are empty"
    plan = plan_attention(demand, machine, threads)
    if plan is None:
        return "; ".join(filter(None, (f"rows of {chain.keys} scores do not fit the cache", demand.unread)))
    if demand.turned:
        before = chain.batch * demand.turned * TRANSPOSE_CYCLES / threads + LAUNCH_CYCLES
        apart = plan_attention(replace(demand, turned=0, keys_by_row=False), machine, threads)
        if apart is not None and apart.cycles + before <= plan.cycles:
            return "its operands are transposed by a kernel of their own in less time"
    return estimate(demand, machine, threads).reason


def estimate(demand: AttentionDemand, machine: Machine, threads: int) -> Estimate:
    """Return what both forms are estimated to take.

    Raises:
        Declined: One kernel cannot be.
    """
    together = attention_space(demand, machine, threads).default.cycles
    return Estimate(together, _cycles_apart(demand, machine, threads), demand.kernels)


def plans(demand: AttentionDemand, machine: Machine, threads: int) -> Iterator[AttentionPlan]:
    """Yield the blocks of whole rows that fit half of L2, and where the keys can be cut, those of rows and keys; each
    with every cut of the blocks into tasks."""
    chain = demand.chain
    least = min(_MIN_ROWS, chain.rows)
    # One size for each number of blocks: the smallest, which overlaps least.
    for rows in sorted({Split.of(chain.rows, size).longest for size in range(least, min(chain.rows, _MAX_ROWS) + 1)}):
        for form in _forms(demand, machine):
            block = _Block(demand, rows, chain.keys, form, machine)
            if block.score_bytes <= machine.l2_bytes // 2:
                yield from _tasks(block, threads)
    if demand.unread:
        return
    for rows in sorted({Split.of(chain.rows, min(size, chain.rows)).longest for size in _ONLINE_ROWS}):
        for keys, form in product(_ONLINE_KEYS, _forms(demand, machine)):
            block = _Block(demand, rows, keys, form, machine)
            if keys < chain.keys and block.fits:
                yield from _tasks(block, threads)


class _Keys(Enum):
    """How the first product reads the keys: as they lie or as a task has turned them, in panels that it copies, or row
    by row in dot products."""

    VECTORS = auto()
    PACKED = auto()
    DOTS = auto()


def _forms(demand: AttentionDemand, machine: Machine) -> tuple[_Keys, ...]:
    """Return in which forms the keys may be read."""
    if demand.keys_by_row and demand.chain.depth % machine.vector_lanes == 0:
        return _Keys.VECTORS, _Keys.DOTS
    return (_Keys.VECTORS, _Keys.PACKED) if demand.key_pitch else (_Keys.VECTORS,)


@dataclass(frozen=True)
class _Block:
    """A block of rows and keys."""

    demand: AttentionDemand
    rows: int
    keys: int
    form: _Keys
    machine: Machine

    @property
    def chain(self) -> Chain:
        """The sizes."""
        return self.demand.chain

    @property
    def score_bytes(self) -> int:
        """Size of the scores and of what the softmax makes of them."""
        return 4 * self.demand.buffers * self.rows * padded(self.keys, self.machine.vector_lanes)

    @property
    def fits(self) -> bool:
        """Whether the scores fit half of L2, and what a product reads and writes all of it.

        1x4096x4096 of depth 512 took 192 ms by 111 rows and 256 keys, a product 871 KiB, and 212 by 56 and 512, 1250
        KiB; of depth 64 44.0 by 111 and 256, scores 241 KiB, and 44.9 by 216 and 512, 912 KiB. L2 has 1024.
        """
        side = max(self.chain.depth, self.chain.channels)
        moved = self.score_bytes // self.demand.buffers + 4 * (self.rows + self.keys) * side
        return self.score_bytes <= self.machine.l2_bytes // 2 and moved <= self.machine.l2_bytes

    @property
    def tiles(self) -> tuple[RegisterTile, RegisterTile]:
        """Register tiles of the two products. Values that one row alone multiplies are operands in memory, and take no
        registers: panels of 8 vectors in place of 6 take 0.95 of the time (16 of 1x128x2048x128 on Zen 3)."""
        registers, rows = self.machine.vector_registers, min(self.rows, MAX_STREAMS)
        keys, channels = self._vectors(self.keys), self._vectors(self.chain.channels)
        scores = _cheapest(self.rows, keys, self.chain.depth, registers)
        return scores, _cheapest(rows, channels, self.keys, registers if rows > 1 else 2 * registers)

    def cycles(self) -> float:
        """Return the estimate for a block of rows and all keys."""
        chain, rows = self.chain, self.rows
        _, values = self.tiles
        channels = self._vectors(chain.channels)
        total = 0.0
        for keys, many in ((self.keys, chain.keys // self.keys), (chain.keys % self.keys, 1)):
            total += many * self._score_cycles(keys)
            total += many * total_cycles(values, rows, 1, channels, keys)
            total += many * rows * self._vectors(keys) * SOFTMAX_VECTOR_CYCLES * self.demand.between
        if self.score_bytes > self.machine.l1_bytes:
            total += rows * self._vectors(chain.keys) * SOFTMAX_L2_CYCLES
        if self.keys < chain.keys:
            total += rows * -(-chain.keys // self.keys) * (SOFTMAX_ROW_CYCLES + channels)
        return total

    def copy_cycles(self) -> float:
        """Return the estimate for the copies of the keys and values of a batch, once a task."""
        elements = self.chain.depth * self.chain.keys
        turned = self.demand.turned - elements * (self.form is _Keys.DOTS)
        vectors = self.chain.depth * self._vectors(self.chain.keys) * (self.form is _Keys.PACKED)
        return turned * TURN_CYCLES + vectors * PACK_CYCLES

    def _score_cycles(self, keys: int) -> float:
        """Return what the first product with so many keys takes."""
        rows, depth, vectors = self.rows, self.chain.depth, self._vectors(keys)
        lanes = self.machine.vector_lanes
        if self.form is _Keys.DOTS:
            return rows * vectors * (depth // lanes * (lanes + 1) / LOADS_PER_CYCLE + DOT_FOLD_CYCLES)
        tile, _ = self.tiles
        waits = self._key_cycles(tile, keys)
        return max(total_cycles(tile, rows, 1, vectors, depth), waits) + WEIGHTS_WAITED_FOR * waits

    def _key_cycles(self, tile: RegisterTile, keys: int) -> float:
        """Return what reading rows of so many keys takes that share the sets of L1, a part of which the first product
        waits for in any case; 0 where they share none, or tiles after the first have them from there."""
        if self.form is _Keys.PACKED or not self.demand.key_pitch:
            return 0.0
        row = 4 * tile.vectors * self.machine.vector_lanes
        if not shares_sets(row, self.chain.depth, self.demand.key_pitch, self.machine):
            return 0.0
        tiles_of_rows, panels = -(-self.rows // tile.height), -(-self._vectors(keys) // tile.vectors)
        return tiles_of_rows * panels * self.chain.depth * SHARED_SETS_ROW_CYCLES

    def _vectors(self, elements: int) -> int:
        return -(-elements // self.machine.vector_lanes)


@cache
def _cheapest(rows: int, vectors: int, depth: int, registers: int) -> RegisterTile:
    """Return the register tile that costs least by itself."""
    return min(tiles(rows, 1, vectors, registers), key=lambda tile: total_cycles(tile, rows, 1, vectors, depth))


def _tasks(block: _Block, threads: int) -> Iterator[AttentionPlan]:
    """Yield every cut of the blocks of rows into tasks, each of which turns its operands first."""
    chain, cycles = block.chain, block.cycles()
    blocks = -(-chain.rows // block.rows)
    stream = 4 * chain.keys * (chain.depth + chain.channels)
    for chunks in chunk_counts(blocks, threads):
        tasks = chain.batch * chunks
        longest = Split(blocks, chunks).longest
        again = longest if stream > block.machine.l2_bytes // 2 else 1
        task = (
            block.copy_cycles() + longest * cycles + again * stream / MEMORY_BYTES_PER_CYCLE + TASK_CYCLES
        )  # fmt: skip
        scores, values = block.tiles
        yield AttentionPlan(
            rows=block.rows,
            keys=block.keys,
            scores=scores,
            values=values,
            chunks=chunks,
            packed=block.form is _Keys.PACKED,
            cycles=-(-tasks // threads) * task,
            dots=block.form is _Keys.DOTS,
        )


def _cycles_apart(demand: AttentionDemand, machine: Machine, threads: int) -> float:
    """Return the estimated cycles of a product, a softmax and a product; scores that no L2 holds are written and read
    twice, and once where no softmax is."""
    chain, passes = demand.chain, demand.kernels - 1
    products = (
        choose_blocking(_extents(chain, channels, depth, machine), machine, threads).cycles
        for channels, depth in ((chain.keys, chain.depth), (chain.channels, chain.keys))
    )
    vectors = chain.batch * chain.rows * -(-chain.keys // machine.vector_lanes) / threads
    score_bytes = 4 * vectors * machine.vector_lanes
    traffic = 2 * passes * score_bytes / MEMORY_BYTES_PER_CYCLE if score_bytes > machine.l2_bytes else 0
    return sum(products) + vectors * SOFTMAX_VECTOR_CYCLES * demand.between + traffic + passes * LAUNCH_CYCLES


def _extents(chain: Chain, channels: int, depth: int, machine: Machine) -> Extents:
    return Extents(
        outer=chain.batch, groups=1, height=chain.rows, width=1, channels=channels, taps=(), depth=depth,
        lanes=machine.vector_lanes, input_bytes=4 * chain.rows * depth,
    )  # fmt: skip
