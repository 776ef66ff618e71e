"""How a block brings what its results read through shared memory, and how many sectors that takes."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tvm.ir import Var

from backends.cuda.devices import STATIC_SHARED, WARP
from backends.cuda.kernels.reductions.read import Reduction
from backends.cuda.kernels.reductions.runs.read import AffineRead, span
from backends.cuda.kernels.registers import ACCESS_BYTES
from backends.cuda.kernels.runs import SECTOR_BYTES, SharedRun
from backends.tensorir.stages import dtype_of, item_bytes_of, shape_of

BROUGHT_DTYPES = ("float32", "float16", "bfloat16", "int32")
"""Of tensors that blocks bring."""


@dataclass(frozen=True)
class ReductionRuns:
    """How a block brings what its results read.

    Attributes:
        reads: Of a tensor each.
        repeated: What every block reads again, and holds whole.
        of_block: Results of a block, which follow each other.
        outer: How many of the reduced axes, outermost first, have runs of their own for each index.
        turn: Indices of the next reduced axis that a run has.
    """

    reduction: Reduction
    reads: tuple[AffineRead, ...]
    repeated: tuple[Var, ...]
    of_block: int
    outer: int
    turn: int

    @property
    def results(self) -> tuple[int, ...]:
        """Extents of the results' axes; `reduced` those of the reduced ones."""
        return tuple(int(axis.extent) for axis in self.reduction.stage.spatial)

    @property
    def reduced(self) -> tuple[int, ...]:
        return tuple(int(axis.extent) for axis in self.reduction.stage.reduce)

    @property
    def aligned(self) -> int:
        """Results of a sector of what is stored, which the first thread of a block begins with; 1 where all do."""
        many = SECTOR_BYTES // self.reduction.stored_bytes
        return many if self.of_block % many else 1

    @property
    def threads(self) -> int:
        """Of a block: whole warps, so that each begins with a sector of a run."""
        return -(-(self.of_block + self.aligned - 1) // WARP) * WARP

    @property
    def turns(self) -> int:
        """Runs of the axis that has several indices in each."""
        return -(-self.reduced[self.outer] // self.turn)

    @property
    def held(self) -> tuple[Var, ...]:
        """What a block holds whole: beside what is repeated that of what is behind, as the bias of each channel or a
        scale, which it reads again, and where sectors do not begin with what a warp reads; as far as there is room."""
        found, left = list(self.repeated), STATIC_SHARED - self.shared_bytes() - sum(map(held_bytes, self.repeated))
        for buffer in self.reduction.read_behind:
            elements, item = prod(shape_of(buffer)), item_bytes_of(buffer)
            is_read_again = elements <= self.of_block and elements * item % SECTOR_BYTES and buffer not in found
            if is_read_again and dtype_of(buffer) in BROUGHT_DTYPES and held_bytes(buffer) <= left:
                left -= held_bytes(buffer)
                found.append(buffer)
        return tuple(found)

    def within(self, read: AffineRead) -> int:
        """Return how far apart the elements are that one result reads of a run."""
        sizes = (self.turn, *self.reduced[self.outer + 1 :])
        return sum((size - 1) * step for size, step in zip(sizes, read.inner[self.outer :], strict=True))

    def longest(self, read: AffineRead) -> int:
        """Return the elements of a run, at most."""
        return 1 + self.within(read) + int(self._apart(read, most=True))

    def sectors(self) -> float:
        """Return how many all blocks bring and store, about: a run begins at any element of a sector, and so may what
        blocks store; what they hold whole begins with one."""
        blocks = -(-prod(self.results) // self.of_block)
        runs = blocks * prod(self.reduced[: self.outer]) * self.turns
        lengths = (
            (1 + self.within(read) + self._apart(read, most=False)) * read.item_bytes / SECTOR_BYTES + 1
            for read in self.reads
        )
        cut = blocks if self.aligned > 1 else 0
        held = blocks * sum(-(-held_bytes(buffer) // SECTOR_BYTES) for buffer in self.held)
        return runs * sum(lengths) + held + prod(self.results) * self.reduction.stored_bytes / SECTOR_BYTES + cut

    def shared_bytes(self) -> int:
        """Return those of all runs."""
        return sum(SharedRun.bytes_of(self.longest(read), read.item_bytes) for read in self.reads)

    def _apart(self, read: AffineRead, *, most: bool) -> float:
        """Return how far apart the first and the last result of a block read, at most or in the mean: so many
        neighbours, and what lies between them wherever an outer axis goes on inside of a block."""
        results, apart, inner = self.results, float(self.of_block - 1), 1
        for place in range(len(results) - 1, 0, -1):
            inner *= results[place]
            if results[place - 1] > 1 and inner % self.of_block:
                gap = read.steps[place - 1] - 1 - span(read.steps[place:], results[place:])
                begun = (self.of_block - 1) // inner + 1 if most else (self.of_block - 1) / inner
                whole, rest = divmod(self.of_block, inner)
                apart += min(begun if rest else whole - 1, prod(results[:place]) - 1) * gap
        return min(apart, float(span(read.steps, results)))


def held_bytes(buffer: Var) -> int:
    """Return the shared memory that holds all of a tensor."""
    return -(-prod(shape_of(buffer)) * item_bytes_of(buffer) // ACCESS_BYTES) * ACCESS_BYTES
