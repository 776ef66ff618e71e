"""What a machine can do at most: the roof of the roofline model (Williams, Waterman, Patterson 2009)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Level:
    """A cache, those of all threads together, or the memory.

    Attributes:
        name: "L1", "L2", "L3" or "memory".
        bytes: What it holds; 0 for the memory, which holds anything.
        gbs: Bytes read and written by a = b * s + c on arrays that half fill it, in 1e9 per second.
    """

    name: str
    bytes: int
    gbs: float


@dataclass(frozen=True)
class MachineLimits:
    """Limits with `threads` threads.

    Attributes:
        peak_gflops: float32 multiply-adds on registers, two operations each, in 1e9 per second.
        levels: From the first cache to the memory.
    """

    threads: int
    peak_gflops: float
    levels: tuple[Level, ...]

    @property
    def bandwidth_gbs(self) -> float:
        """Bandwidth of the memory, in 1e9 bytes per second."""
        return self.levels[-1].gbs

    def level(self, footprint: int) -> Level:
        """Return the first level that holds `footprint` bytes."""
        return next((level for level in self.levels if footprint <= level.bytes), self.levels[-1])

    def attainable_s(self, flops: float, bytes_moved: float, footprint: int | None = None) -> float:
        """Return the least seconds in which `flops` operations on `bytes_moved` bytes can be done.

        `footprint` is what is touched before the same bytes are touched again, which tells in which level they lie;
        None is more than any cache holds.
        """
        level = self.levels[-1] if footprint is None else self.level(footprint)
        return max(flops / (self.peak_gflops * 1e9), bytes_moved / (level.gbs * 1e9))
