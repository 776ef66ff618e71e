"""What a tuning job did: which points it measured, in which network, and what came of them."""

from __future__ import annotations

from dataclasses import dataclass, field


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
class JobRound:
    """Points of one network that were built and measured together.

    Attributes:
        network: Its name.
        before, after: Seconds of the network without and with what is the fastest now; 0 where nothing was measured.
        points: Those that were measured.
    """

    network: str
    before: float
    after: float
    points: tuple[MeasuredPoint, ...]


@dataclass
class JobLog:
    """All rounds of a job."""

    rounds: list[JobRound] = field(default_factory=list)

    @property
    def measured(self) -> int:
        """How many points were measured."""
        return sum(not point.failed for each in self.rounds for point in each.points)

    def of(self, network: str) -> list[JobRound]:
        """Return the rounds of a network in which something was measured."""
        return [each for each in self.rounds if each.network == network and each.after]
