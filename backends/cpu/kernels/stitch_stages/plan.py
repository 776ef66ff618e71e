"""What stitched stages leave open: tasks, tiles, and vectors that are computed side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from backends.tensorir.space import Space

# A parallel region costs about 2 us. Two threads begin to pay at 45,000 elements of relu, 24,000 of exp, 12,000 of
# softmax, 25,000 of layer_norm (Zen 4): 180,000 to 560,000 of the operations that `Work` counts.
_SERIAL_BELOW = 18 << 14
_OPERATION_CYCLES = 0.5
"""Of one simple operation on a vector: a softmax has 34 and takes 17 cycles a vector in L1 (Zen 4)."""
_ADD_LATENCY = 4
_REGION_CYCLES = 6_600
_TILE_CYCLES = 20
"""Where a tile begins, and the loops that it starts."""
ROW_VECTORS = 4
COLUMN_VECTORS = 8
"""Independent accumulators: 4 hide the 4-cycle latency of an add on 1 port, 8 on 2 ports (Intel and AMD alike)."""
UNROLLED = 4
_WIDTHS = (1, 2, 4, 8)


@dataclass(frozen=True)
class Tiling:
    """How the loops of stitched stages are cut.

    Attributes:
        tasks: Runs of neighbouring tiles; 1 is serial.
        tiles: Tiles of a task at least, where its vector axis can be cut for them.
        row_vectors: Accumulators of a reduction along the axis of the vectors.
        column_vectors: Vectors of results that stay in registers while other axes are reduced.
        unrolled: Vectors of a cheap map in one step of its loop.
        cycles: Estimate for the slowest thread, with all data in L1.
    """

    tasks: int = 1
    tiles: int = 1
    row_vectors: int = ROW_VECTORS
    column_vectors: int = COLUMN_VECTORS
    unrolled: int = UNROLLED
    cycles: float = 0.0

    def __str__(self) -> str:
        usual = (self.tiles, self.row_vectors, self.column_vectors, self.unrolled) == (
            1, ROW_VECTORS, COLUMN_VECTORS, UNROLLED,
        )  # fmt: skip
        rest = f" by {self.tiles}, {self.row_vectors}/{self.column_vectors}/{self.unrolled} vectors"
        return f"{self.tasks} threads" + ("" if usual else rest)


@dataclass(frozen=True)
class Work:
    """What a group computes: vectors, and the simple operations on one of them.

    Attributes:
        operations: Simple operations on all elements.
        maps, rows, columns: (vectors, operations on each) of the stages without a reduction that are cheap enough to be
            unrolled, of those that reduce along their vectors, and of those that reduce another axis.
        others: The same of all other stages.
    """

    operations: int
    maps: tuple[tuple[float, float], ...] = ()
    rows: tuple[tuple[float, float], ...] = ()
    columns: tuple[tuple[float, float], ...] = ()
    others: tuple[tuple[float, float], ...] = ()

    def space(self, threads: int) -> Space[Tiling]:
        """Return every cut into tasks and tiles with every number of vectors that some stage heeds."""

        def every() -> Iterator[Tiling]:
            tasks = (1, *(threads * many for many in (1, 2, 4))) if threads > 1 else (1,)
            heeded = (
                _WIDTHS if self.rows else (ROW_VECTORS,),
                _WIDTHS if self.columns else (COLUMN_VECTORS,),
                _WIDTHS if self.maps else (UNROLLED,),
            )
            for many, tiles, *widths in product(tasks, _WIDTHS, *heeded):
                yield self._point(threads, Tiling(many, tiles, *widths))

        default = Tiling(threads if self.operations >= _SERIAL_BELOW else 1)
        return Space(self._point(threads, default), every)

    def _point(self, threads: int, cut: Tiling) -> Tiling:
        """Return `cut` with its estimate."""
        cycles = sum(many * each * _OPERATION_CYCLES for many, each in self.others)
        cycles += sum(many * (each * _OPERATION_CYCLES + 1 / cut.unrolled) for many, each in self.maps)
        for stages, side_by_side in ((self.rows, cut.row_vectors), (self.columns, cut.column_vectors)):
            cycles += sum(many * max(each * _OPERATION_CYCLES, _ADD_LATENCY / side_by_side) for many, each in stages)
        rounds = -(-cut.tasks // threads)
        cycles = rounds * (cycles / cut.tasks + cut.tiles * _TILE_CYCLES)
        cycles += _REGION_CYCLES if cut.tasks > 1 else 0
        return Tiling(cut.tasks, cut.tiles, cut.row_vectors, cut.column_vectors, cut.unrolled, cycles)
