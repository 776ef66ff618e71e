"""What a network takes at the defaults of all its kernels, and with the points that were found."""

from __future__ import annotations

from dataclasses import dataclass

from tuning.decide import Decision
from tuning.record import Record
from tuning.task import TuningTask


@dataclass(frozen=True)
class NetworkTimes:
    """Seconds of a run.

    Attributes:
        before: At the defaults: the median of blocks of runs.
        after: With the points, in turns with the defaults.
        spread: By how much blocks differed.
        runs: How often it ran with the points.
        is_clear: Whether it is faster with them by more than the noise: in every block by the share that makes a point
            win, or in the median by more than blocks differ.
    """

    before: float
    after: float
    spread: float
    runs: int
    is_clear: bool

    @staticmethod
    def of_decision(decision: Decision) -> NetworkTimes | None:
        """Return what was measured where the network was the only kernel; None where there was no time for it."""
        if len(decision.times) < 2:
            return None
        default, found = decision.times
        spread = max(default.spread, found.spread)
        if not found.spread:  # of one block, as it was not faster in the first runs, or there was no time for others
            spread = abs(found.seconds - found.default_s)
        uses = decision.uses
        return NetworkTimes(
            before=uses * found.default_s,
            after=uses * found.seconds,
            spread=uses * spread,
            runs=found.runs,
            is_clear=bool(decision.candidate) or found.seconds + spread < found.default_s,
        )

    @staticmethod
    def of_record(record: Record) -> NetworkTimes:
        """Return what `record` was made of."""
        return NetworkTimes(
            before=record.default_s,
            after=record.seconds,
            spread=record.spread,
            runs=record.runs,
            is_clear=record.wins,
        )

    def record(self, task: TuningTask, measured_at: float) -> Record:
        """Return the record of it, for the task of the network with these points."""
        return Record(
            task=task,
            point={},
            seconds=self.after,
            spread=self.spread,
            runs=self.runs,
            default_s=self.before,
            wins=self.is_clear,
            measured_at=measured_at,
        )
