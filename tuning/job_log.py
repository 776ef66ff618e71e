"""What a tuning job did: which points it measured, in which network, what came of them, and how long that took."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from tuning.network_times import NetworkTimes

_LEAST_GAIN = 0.02
"""Of the defaults' time, that a network is faster by after a round: its last runs are few, and their noise unknown."""


@dataclass(frozen=True)
class MeasuredPoint:
    """A point of a kernel in a round.

    Attributes:
        kernel: Its name in the network.
        tile: The loops in words.
        failed: Whether it crashed, hung or raised.
    """

    kernel: str
    tile: str
    failed: bool


@dataclass(frozen=True)
class KernelTimes:
    """Seconds of all calls of a kernel in a run.

    Attributes:
        seconds: With the point that it has by then.
        default_s: At the default.
    """

    seconds: float
    default_s: float


@dataclass(frozen=True)
class RoundTimes:
    """Where the seconds of a round went.

    Attributes:
        choosing: Points, and writing their loops, while machine code of the first of them is made.
        building: Machine code of the rest.
        waiting: For others to leave the machine alone.
        measuring: And learning from it.
    """

    choosing: float
    building: float
    waiting: float
    measuring: float


@dataclass(frozen=True)
class JobRound:
    """Points of one network that were built and measured together.

    Attributes:
        network: Its name.
        before, after: Seconds of the network without and with what is the fastest now; 0 where nothing was measured.
        points: Those that were measured.
        kernels: What those with several candidates took.
        times: What the round took.
        ended: When, of `time.perf_counter`.
        is_busy: Whether others used the machine.
    """

    network: str
    before: float
    after: float
    points: tuple[MeasuredPoint, ...]
    kernels: Mapping[str, KernelTimes]
    times: RoundTimes
    ended: float
    is_busy: bool


@dataclass
class JobLog:
    """All rounds of a job, which began at a time of `time.perf_counter`."""

    rounds: list[JobRound] = field(default_factory=list)
    began: float = field(default_factory=time.perf_counter)

    @property
    def measured(self) -> int:
        """How many points were measured."""
        return sum(not point.failed for each in self.rounds for point in each.points)

    def of(self, network: str) -> list[JobRound]:
        """Return the rounds of a network in which something was measured."""
        return [each for each in self.rounds if each.network == network and each.after]

    def points_of(self, network: str) -> int:
        """Return how many points of a network were measured."""
        return sum(len(each.points) for each in self.rounds if each.network == network)

    def times_of(self, network: str) -> NetworkTimes | None:
        """Return what a network took in its last round; None where there was none."""
        rounds = self.of(network)
        if not rounds:
            return None
        before, after = rounds[-1].before, rounds[-1].after
        least = _LEAST_GAIN * before
        return NetworkTimes(before, after, least, runs=len(rounds), is_clear=before - after > least)

    def since(self, made: JobRound) -> float:
        """Return the seconds from the beginning to the end of a round."""
        return made.ended - self.began
