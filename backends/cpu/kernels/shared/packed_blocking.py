"""Whether a contraction reads weights that lie as they come where they lie, or in copies that its tasks make."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

from backends.cpu.costs import MEMORY_BYTES_PER_CYCLE, PACK_CYCLES, STRIDED_ROW_CYCLES
from backends.cpu.kernels.shared.blocking import blocking_space, choose_blocking, likely_blockings
from backends.cpu.kernels.shared.blocking_features import blocking_features
from backends.cpu.kernels.shared.contraction import Blocking
from backends.cpu.kernels.shared.extents import Extents
from backends.cpu.kernels.shared.split import Split
from backends.cpu.kernels.shared.weights_in_place import first_pass
from backends.cpu.machine import Machine
from backends.tensorir.space import Space


@dataclass(frozen=True)
class PackedBlocking:
    """A blocking each task of which copies its weights, a block of panels after the other.

    Attributes:
        blocking: How the loops are cut.
        cycles: Estimate for the slowest thread.
    """

    blocking: Blocking
    cycles: float

    def axes(self) -> dict[str, int]:
        return {**self.blocking.axes(), "packed": 1}

    def __str__(self) -> str:
        return f"{self.blocking}, packed"


@cache
def choose_in_place(extents: Extents, machine: Machine, threads: int) -> Blocking | PackedBlocking:
    """Return the blocking of a contraction by weights that lie as they come, in the form that costs less."""
    copying = _Copying(extents, machine, threads)
    found: list[Blocking | PackedBlocking] = [choose_blocking(extents, machine, threads)]
    if extents.weight_pitch is not None:
        found += map(copying.blocking, likely_blockings(copying.extents, machine, threads))
    return min(found, key=lambda point: point.cycles)


def in_place_space(extents: Extents, machine: Machine, threads: int) -> Space[Blocking | PackedBlocking]:
    """Return every blocking in both forms, or in the plain one alone where the weights have no pitch."""
    copying = _Copying(extents, machine, threads)

    def every() -> Iterator[Blocking | PackedBlocking]:
        yield from blocking_space(extents, machine, threads)
        if extents.weight_pitch is not None:
            yield from map(copying.blocking, blocking_space(copying.extents, machine, threads))

    def features(point: Blocking | PackedBlocking) -> Mapping[str, float]:
        blocking = point.blocking if isinstance(point, PackedBlocking) else point
        return blocking_features(extents, machine, threads, blocking)

    return Space(choose_in_place(extents, machine, threads), every, features)


@dataclass(frozen=True)
class _Copying:
    """A contraction whose tasks copy its weights.

    Attributes:
        original: Its sizes, with the weights as they lie.
    """

    original: Extents
    machine: Machine
    threads: int

    @property
    def extents(self) -> Extents:
        """Its sizes, with panels that lie together."""
        return replace(self.original, weight_pitch=0)

    def blocking(self, found: Blocking) -> PackedBlocking:
        """Return a blocking with the time that copies take, which read all panels of a block row by row."""
        sizes, tile = self.original, found.tile
        panels = Split(-(-sizes.vectors // tile.vectors), found.panel_chunks).longest
        vectors, vector_bytes = min(panels * tile.vectors, sizes.vectors), 4 * sizes.lanes
        parts = vectors * sizes.steps / min(found.panel_block, panels) / tile.vectors
        far = first_pass(sizes, vector_bytes, self.machine) < MEMORY_BYTES_PER_CYCLE
        copies = vectors * sizes.steps * PACK_CYCLES + parts * STRIDED_ROW_CYCLES * far
        rounds = -(-sizes.outer * found.row_chunks * found.panel_chunks // self.threads)
        return PackedBlocking(found, found.cycles + rounds * copies)
