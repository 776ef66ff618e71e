"""What a job knows at its end of each kernel, and what was expected of each point before it was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from math import exp

from tuning.job_log import JobLog
from tuning.kernel_search import KernelSearch
from tuning.record import Record


@dataclass(frozen=True)
class JudgedForecast:
    """A point with what was expected of it, as ratios to the time of the default.

    Attributes:
        tables: By the estimates, and the model of the machine where that ranks the family.
        expected: By the search, given what had been measured before.
        measured: What it took.
    """

    tables: float
    expected: float
    measured: float


@dataclass(frozen=True)
class StudiedKernel:
    """A kernel of a network whose points were searched.

    Attributes:
        name: In the network.
        share: Of the network's time, at the default.
        tile: The loops of the default in words.
        search: With all records.
    """

    name: str
    share: float
    tile: str
    search: KernelSearch

    @property
    def family(self) -> str:
        """The template that takes it."""
        return self.search.known.task.family

    @property
    def best(self) -> Record | None:
        """The record of the point that it gets; None where that is the default."""
        return self.search.best_record()

    @property
    def failed(self) -> int:
        """How many points crashed, hung or raised."""
        return sum(record.failed for record in self.search.known.records)

    def moved(self) -> dict[str, tuple[int | None, int]]:
        """Return the axes on which the best point differs from the default, with both values."""
        best, default = self.best, self.search.known.choices.space.default.axes()
        return {} if best is None else {
            name: (default.get(name), value) for name, value in best.point.items() if default.get(name) != value
        }  # fmt: skip

    @property
    def expected_by_tables(self) -> float:
        """What the tables expected of the best point, as a ratio to the default's time; 1 where that is the best."""
        best = self.best
        forecasts = () if best is None else self.search.search.forecasts([], [best])
        return next((exp(forecast.prior) for forecast in forecasts), 1.0)

    def judged(self) -> Iterator[JudgedForecast]:
        """Yield what was expected of each point that was measured, given the records that are older: those of a round
        have one time, and the newest of each point is kept."""
        records = sorted(self.search.known.records, key=lambda record: record.measured_at)
        before = list[Record]()
        for _, group in groupby(records, key=lambda record: record.measured_at):
            some = list(group)
            measured = [record for record in some if not record.failed and record.ratio > 0]
            for forecast in self.search.search.forecasts(before, measured):
                yield JudgedForecast(exp(forecast.prior), exp(forecast.mean), forecast.record.ratio)
            before += some


@dataclass(frozen=True)
class TuningStudy:
    """A job at its end.

    Attributes:
        log: What it measured.
        networks: The kernels of each network, by its name.
        lowering_s: Seconds for making the networks.
        verifying_s: For running them at the defaults and at the best points, at the end.
    """

    log: JobLog
    networks: Mapping[str, tuple[StudiedKernel, ...]]
    lowering_s: float
    verifying_s: float
