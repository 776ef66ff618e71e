"""How the rows of a kernel are shared among blocks and threads, and what of memory passes through a block's own."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tvm.ir import Var

from backends.cuda.devices import WARP, CudaDevice
from backends.cuda.kernels.registers import ACCESS_BYTES
from backends.cuda.kernels.rows.read import RowRegion, indices_of
from backends.cuda.kernels.runs import GOOD_SHARE, SECTOR_BYTES, SharedRun, sector_share
from backends.tensorir.emit import Expr
from backends.tensorir.inlining import guards
from backends.tensorir.stages import item_bytes_of, loads, shape_of

_THREADS = 128
_OF_THREAD = 32
"""Elements of a row that a thread holds at most, a register each for each value that is held."""
_MOST_THREADS = 1024
LONGEST = _OF_THREAD * _MOST_THREADS
"""Elements of a row that a block holds."""


def threads_of_row(vectors: int, width: int) -> int:
    """Return how many threads share a row, a power of two: lanes of a warp, or where these would hold too much, warps
    of which each thread has at least two accesses."""
    if width <= WARP * _OF_THREAD:
        return min(WARP, 1 << (vectors - 1).bit_length())
    wanted = max(-(-width // _OF_THREAD), min(vectors // 2, _MOST_THREADS // 2))
    return int(min(_MOST_THREADS, 1 << (wanted - 1).bit_length()))


def threads_of_block(region: RowRegion, many: int, group: int, device: CudaDevice) -> tuple[int, int]:
    """Return how many threads a block has, and the shared memory of its rows where they pass through it as one run, 0
    where they are read where they lie.

    What the rows of a block have in memory, be it a number each, begins and ends with sectors, but for rows of a block
    each.
    """
    threads = group if group > WARP else _THREADS  # warps that share a row have the shared memory of their block
    sizes = [item_bytes_of(buffer) for buffer in _in_memory(region)]
    share = min(sector_share(region.width, size, many, group) for size in sizes)
    if share >= GOOD_SHARE and all(fills_row(region, buffer) for buffer in region.outputs):
        return threads, 0
    least, is_run = min(sizes), share < GOOD_SHARE
    if group <= WARP:
        threads *= 2
        threads *= 2 if threads // group * least % SECTOR_BYTES else 1
    shared_bytes = SharedRun.bytes_of(threads // group * region.width, max(sizes)) if is_run else 0
    return threads, shared_bytes if shared_bytes <= device.block_shared_bytes else 0


def fills_row(region: RowRegion, buffer: Var) -> bool:
    """Return whether what a stage makes of a row has all of its columns."""
    return prod(shape_of(buffer)) == region.width


def _in_memory(region: RowRegion) -> set[Var]:
    """Return what is read from and written to memory, but for indices, of which a row has one."""
    stages = (*region.stages, *region.inlined.values())
    made = {stage.buffer for stage in stages} - set(region.outputs)
    read = {load.source for stage in stages for load in loads(stage.value)} - indices_of(stages)
    return read - made | set(region.outputs)


def lanes_of(region: RowRegion) -> int:
    """Return how many neighbours one access brings: all rows begin where that is aligned. What is read in branches is
    read element by element, by lanes side by side."""
    if any(guards(stage.value) for stage in (*region.stages, *region.inlined.values())):
        return 1
    many = ACCESS_BYTES // max(map(item_bytes_of, _in_memory(region)))
    while region.width % many:
        many //= 2
    return many


@dataclass(frozen=True)
class RowShare:
    """What one thread has of a row: `chunks` times `many` neighbours.

    Attributes:
        group: Threads that share the row, a power of two.
        member: Which of them the thread is.
        is_stored: Whether the thread's row is one of its own; None where that is so of all threads.
        rows: The first row of the block, and the one behind its last.
        is_run: Whether they pass through shared memory.
    """

    region: RowRegion
    many: int
    group: int
    chunks: int
    member: Var
    is_stored: Expr | None
    rows: tuple[Expr, Expr]
    is_run: bool

    @property
    def is_full(self) -> bool:
        """Whether all chunks of all threads are inside of the row."""
        return self.chunks * self.group * self.many == self.region.width
