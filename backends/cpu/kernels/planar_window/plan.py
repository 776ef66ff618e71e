"""How a window over planes is cut: lanes, register tile, bands of rows, and the scratch a band is copied into."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvm import tirx

from backends.cpu.costs import REGION_CYCLES
from backends.cpu.kernels.planar_window.costs import PLANAR_TILE_CYCLES, UNALIGNED_LOAD_CYCLES, UNHIDDEN_LOADS
from backends.cpu.kernels.planar_window.read import Planes, planes_of
from backends.cpu.kernels.shared.split import Split
from backends.cpu.machine import Machine
from backends.tensorir.emit import Expr
from backends.tensorir.roles import Roles
from backends.tensorir.space import Space


@dataclass(frozen=True)
class Line:
    """One row of scratch: for a stride of s along x, s phases of `pitch` elements with every s-th element of the padded
    row each, so that neighbouring outputs read neighbouring elements.

    Attributes:
        origin: Where element 0 of a phase lies; chosen so that whole vectors of the image begin at a multiple of lanes.
        pitch: Elements of a phase.
        first, end: The positions of a phase for which all phases lie inside the image.
        needed: How many positions the taps read.
    """

    origin: int
    pitch: int
    first: int
    end: int
    needed: int

    @staticmethod
    def of(planes: Planes, lanes: int) -> Line:
        stride, left = planes.window.strides[1], planes.window.padding[1]
        shift = (planes.window.kernel[1] - 1) * planes.window.dilation[1] // stride
        first = -(-left // stride)
        needed = planes.out_width + shift
        end = max(first, min((planes.width + left) // stride, needed))
        origin = -first % lanes
        pitch = origin + max(planes.out_width, lanes) + shift
        return Line(origin, -(-pitch // lanes) * lanes, first, end, needed)


@dataclass(frozen=True)
class PlanarPlan:
    """Loops of a window over planes.

    Attributes:
        lanes: Elements of a vector, along the row.
        rows, vectors: The register tile.
        row_vectors: Vectors of an output row; the last one ends where the row ends.
        bands: Output rows by what is copied to scratch at once.
        block: Bands that are copied before the first of them is computed: loads of what was just stored in other pieces
            wait for the stores. 960 planes of 9x9 took 36 us one by one and 12 in blocks.
        narrow: Whether an output row is shorter than a vector.
        line: A row of scratch; None where the taps read the input in place.
        threads: Shares of the planes and bands.
        cycles: Estimate for the slowest of them.
    """

    lanes: int
    rows: int
    vectors: int
    row_vectors: int
    bands: Split
    block: int
    narrow: bool
    line: Line | None
    threads: int
    cycles: float

    def axes(self) -> dict[str, int]:
        # The others follow from these and the sizes.
        cuts = {"bands": self.bands.count, "block": self.block, "threads": self.threads}
        return {"rows": self.rows, "vectors": self.vectors, **cuts}

    def __str__(self) -> str:
        return f"{self.rows}x{self.vectors}v{self.lanes}" + (f" in {self.bands.count} bands" if self.line else "")


def _band_rows(planes: Planes, line: Line, machine: Machine) -> int:
    """Return how many output rows have their input in half of L1."""
    reach: int = planes.window.rows_under(1)
    return max(1, (_fitting_rows(planes, line, machine) - reach) // planes.window.strides[0] + 1)


def _fitting_rows(planes: Planes, line: Line, machine: Machine) -> int:
    """Return how many rows of scratch half of L1 holds."""
    return machine.l1_bytes // 2 // (4 * line.pitch * planes.window.strides[1])


def planar_space(roles: Roles, machine: Machine, threads: int) -> Space[PlanarPlan]:
    """Return the plans of the window."""
    return plan_space(planes_of(roles), machine, threads)


def plan_space(planes: Planes, machine: Machine, threads: int) -> Space[PlanarPlan]:
    """Return every register tile for every sensible number of bands. The default fills half of L1 with a band, or has a
    few bands for each thread, and takes the cheapest tile for those."""
    lanes = machine.vector_lanes
    while lanes // 2 >= planes.out_width and lanes > 4:
        lanes //= 2
    line, narrow = Line.of(planes, lanes), planes.out_width < lanes
    most = _band_rows(planes, line, machine)
    least = 1 if narrow else max(-(-planes.out_height // most), -(-2 * threads // planes.count))
    row_vectors = -(-planes.out_width // lanes)

    def plans(bands: Split, workers: int) -> Iterator[PlanarPlan]:
        shares = -(-planes.count * bands.count // workers)
        region = REGION_CYCLES if planes.count * bands.count > 1 < workers else 0
        together = _fitting_rows(planes, line, machine) // planes.window.rows_under(planes.out_height)
        for rows, vectors, cycles in _tiles(planes, bands.short, row_vectors, machine.vector_registers):
            in_place = planes.window.strides[1] == 1 and not planes.pads_columns and not narrow
            in_place = in_place and (not planes.pads_rows or rows == planes.out_height)
            block = 1 if in_place or bands.count > 1 else max(1, min(together, shares))
            where, total = None if in_place else line, shares * cycles + region
            yield PlanarPlan(
                lanes=lanes,
                rows=rows,
                vectors=vectors,
                row_vectors=row_vectors,
                bands=bands,
                block=block,
                narrow=narrow,
                line=where,
                threads=workers,
                cycles=total,
            )

    def every() -> Iterator[PlanarPlan]:
        for count in sorted({min(planes.out_height, least << power) for power in range(1 if narrow else 4)}):
            for workers in sorted({1, threads}):
                yield from plans(Split(planes.out_height, count), workers)

    first = Split(planes.out_height, min(planes.out_height, least))
    candidates = (plan for workers in sorted({1, threads}) for plan in plans(first, workers))
    return Space(min(candidates, key=lambda plan: plan.cycles), every)


def _tiles(planes: Planes, most_rows: int, row_vectors: int, registers: int) -> Iterator[tuple[int, int, float]]:
    """Yield the output rows and vectors of each register tile, and the cycles of a band: neighbouring rows share what
    they load."""
    kernel_rows, kernel_columns = planes.window.kernel
    weights = min(kernel_rows, registers // 2) if planes.weighted else 0
    budget = registers - weights - 2
    for rows in range(1, min(most_rows, budget) + 1):
        taps = planes.taps(rows)
        steps = sum(len(pairs) for pairs in taps.values())
        for vectors in range(1, min(row_vectors, budget // rows) + 1):
            compute = steps * vectors * kernel_columns
            loads = len(taps) * vectors * kernel_columns * UNALIGNED_LOAD_CYCLES
            loads += kernel_rows * kernel_columns if planes.weighted else 0
            tiles = -(-most_rows // rows) * -(-row_vectors // vectors)
            overlapped = max(compute, loads) + UNHIDDEN_LOADS * min(compute, loads)
            yield rows, vectors, tiles * (overlapped + PLANAR_TILE_CYCLES)


def steps(extent: Expr, size: int) -> Expr:
    """Return how many tiles of `size` cover an extent, a number or an expression."""
    return -(-extent // size) if isinstance(extent, int) else tirx.ceildiv(extent, size)
