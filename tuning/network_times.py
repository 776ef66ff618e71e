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
        spread: By how much blocks differed; a difference that is smaller is none.
        runs: How often it ran with the points.
    """

    before: float
    after: float
    spread: float
    runs: int

    @property
    def is_clear(self) -> bool:
        """Whether it is faster by more than the noise."""
        return self.runs > 0 and self.after + self.spread < self.before

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
        return NetworkTimes(uses * found.default_s, uses * found.seconds, uses * spread, found.runs)

    @staticmethod
    def of_record(record: Record) -> NetworkTimes:
        """Return what `record` was made of."""
        return NetworkTimes(record.default_s, record.seconds, record.spread, record.runs)

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
