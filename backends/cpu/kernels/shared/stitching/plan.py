"""What stitched stages leave open: tasks, tiles, and vectors that are computed side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import log2

from tvm.ir import Var

from backends.cpu.costs import (
    ADD_LATENCY,
    COPY_OPERATIONS,
    OPERATION_CYCLES,
    SERIAL_OPERATIONS,
    STITCHED_REGION_CYCLES,
    STITCHED_TILE_CYCLES,
    STRIDED_OPERATIONS,
    UNROLLED_OPERATIONS,
)
from backends.cpu.kernels.shared.stitching.stage_group import StageGroup
from backends.cpu.kernels.shared.stitching.vector_axis import choose_vector_axis, find_turn
from backends.cpu.machine import Machine
from backends.tensorir.accesses import Accesses
from backends.tensorir.extents import Extent, typical
from backends.tensorir.inlining import operation_cost
from backends.tensorir.space import Space
from backends.tensorir.stages import Stage, loads

ROW_VECTORS = 4
COLUMN_VECTORS = 8
"""Independent accumulators: 4 hide the latency of an add on 1 port, 8 on 2 ports (Intel and AMD alike)."""
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

    def axes(self) -> dict[str, int]:
        widths = {"row_vectors": self.row_vectors, "column_vectors": self.column_vectors, "unrolled": self.unrolled}
        return {"tasks": self.tasks, "tiles": self.tiles, **widths}

    def __str__(self) -> str:
        usual = (self.tiles, self.row_vectors, self.column_vectors, self.unrolled) == (
            1, ROW_VECTORS, COLUMN_VECTORS, UNROLLED,
        )  # fmt: skip
        rest = f" by {self.tiles}, {self.row_vectors}/{self.column_vectors}/{self.unrolled} vectors"
        return f"{self.tasks} threads" + ("" if usual else rest)


@dataclass(frozen=True)
class StitchedWork:
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

        default = Tiling(threads if self.operations >= SERIAL_OPERATIONS else 1)
        return Space(self._point(threads, default), every, self._features)

    def _features(self, point: Tiling) -> Mapping[str, float]:
        """Return numbers that a cost model learns from: how much there is of each kind of work, as logarithms."""
        kinds = {"maps": self.maps, "rows": self.rows, "columns": self.columns, "others": self.others}
        return {
            "operations": log2(1 + self.operations), "operations a task": log2(1 + self.operations / point.tasks),
            **{f"{kind} of it": log2(1 + sum(many * each for many, each in found)) for kind, found in kinds.items()},
            **{f"{kind} vectors": log2(1 + sum(many for many, _ in found)) for kind, found in kinds.items()},
        }  # fmt: skip

    def _point(self, threads: int, cut: Tiling) -> Tiling:
        """Return `cut` with its estimate."""
        cycles = sum(many * each * OPERATION_CYCLES for many, each in self.others)
        cycles += sum(many * (each * OPERATION_CYCLES + 1 / cut.unrolled) for many, each in self.maps)
        for stages, side_by_side in ((self.rows, cut.row_vectors), (self.columns, cut.column_vectors)):
            cycles += sum(many * max(each * OPERATION_CYCLES, ADD_LATENCY / side_by_side) for many, each in stages)
        rounds = -(-cut.tasks // threads)
        cycles = rounds * (cycles / cut.tasks + cut.tiles * STITCHED_TILE_CYCLES)
        cycles += STITCHED_REGION_CYCLES if cut.tasks > 1 else 0
        return Tiling(
            tasks=cut.tasks,
            tiles=cut.tiles,
            row_vectors=cut.row_vectors,
            column_vectors=cut.column_vectors,
            unrolled=cut.unrolled,
            cycles=cycles,
        )


def stitched_work(stages: Sequence[Stage], outputs: set[Var], machine: Machine) -> StitchedWork:
    """Return what `stages` compute, of which `outputs` are read outside of them."""
    return work_of(StageGroup.of(list(stages), outputs), machine.vector_lanes)


def has_turn(stages: Sequence[Stage], outputs: set[Var], machine: Machine) -> bool:
    """Return whether a stage reads something along another axis than it writes."""
    group = StageGroup.of(list(stages), outputs)
    lanes = machine.vector_lanes
    found = ((stage, group.accesses[stage.buffer]) for stage in group.kept)
    return any(find_turn(stage, access, choose_vector_axis(stage, access), lanes) for stage, access in found)


def work_of(group: StageGroup, lanes: int) -> StitchedWork:
    """Return what the stages of a group compute, in vectors of `lanes` float32; inlined ones are counted once."""
    kinds: dict[str, list[tuple[float, float]]] = {"maps": [], "rows": [], "columns": [], "others": []}
    operations = 0
    for stage in (*group.kept, *group.inlined.values()):
        each = _operations(stage)
        kind = "others" if stage.buffer in group.inlined else _kind(stage, group.accesses[stage.buffer])
        vectors = stage.iterations / lanes
        kinds[kind].append((vectors, each))
        operations += stage.iterations * each
    gathered = sum(typical(_gathered(stage, group.accesses[stage.buffer])) for stage in group.kept)
    kinds["others"].append((gathered / lanes, 1))
    return StitchedWork(operations + gathered, **{kind: tuple(found) for kind, found in kinds.items()})


def operations_of(stage: Stage, accesses: Accesses, inlined: Mapping[Var, Stage]) -> Extent:
    """Return the simple operations on all elements of a stage, and of those computed where it reads them."""
    pending, computed = [stage], {stage.buffer: stage}
    while pending:
        made = {load.source: inlined[load.source] for load in loads(pending.pop().value) if load.source in inlined}
        pending += [each for buffer, each in made.items() if buffer not in computed]
        computed |= made
    operations = sum(each.points * _operations(each) for each in computed.values())
    return operations + _gathered(stage, accesses)


def _operations(stage: Stage) -> int:
    """Return the simple operations on an element of a stage."""
    return max(COPY_OPERATIONS, 2 + operation_cost(stage.value))


def _kind(stage: Stage, accesses: Accesses) -> str:
    if stage.combine is None:
        return "maps" if is_unrolled(stage) else "others"
    vector = choose_vector_axis(stage, accesses)
    return "rows" if vector in stage.reduce else "columns"


def is_unrolled(stage: Stage) -> bool:
    """Return whether a map is so cheap that its loop's own instructions count."""
    return operation_cost(stage.value) <= UNROLLED_OPERATIONS


def _gathered(stage: Stage, accesses: Accesses) -> Extent:
    """Return what accesses cost more, in simple operations, that are strided along the vector axis."""
    vector = choose_vector_axis(stage, accesses)
    strided = [access for access in accesses.all if vector and access.steps[vector.var] not in (0, 1)]
    return stage.points * STRIDED_OPERATIONS if strided else 0
