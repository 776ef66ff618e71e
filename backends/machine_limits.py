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
class Stream:
    """Data that a kernel reads or writes once.

    Attributes:
        bytes: How much.
        footprint: What is touched until the same data is touched again, in bytes: it lies in the level that holds
            this much.
    """

    bytes: int
    footprint: int


@dataclass(frozen=True)
class Floor:
    """The least time a kernel can take.

    Attributes:
        seconds: The time.
        bound: What sets it: "compute", or the level that most of the time goes to.
    """

    seconds: float
    bound: str


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

    def floor(self, flops: float, *streams: Stream) -> Floor:
        """Return the least time in which `flops` operations on these streams can be done."""
        computing_s = flops / (self.peak_gflops * 1e9)
        moving = [(stream.bytes / (level.gbs * 1e9), level) for stream in streams if (level := self._holding(stream))]
        moving_s = sum(seconds for seconds, _ in moving)
        if computing_s >= moving_s:
            return Floor(computing_s, "compute")
        return Floor(moving_s, max(moving, key=lambda part: part[0])[1].name)

    def _holding(self, stream: Stream) -> Level:
        return next((level for level in self.levels if stream.footprint <= level.bytes), self.levels[-1])
