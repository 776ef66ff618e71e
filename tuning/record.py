"""A measurement of a point, stored as a line of JSON with a checksum."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from tuning.canonical import Fields, canonical
from tuning.task import TuningTask

_SUM = "sum"
_DIGITS = 16
"""How many digits of the sha256 are kept: they detect damage, not forgery."""


@dataclass(frozen=True)
class Record:
    """A measurement.

    Attributes:
        task: What was measured.
        point: The point: `Point.axes()`, or a form of a chain.
        seconds: Seconds of a call, the median over blocks of rounds.
        spread: The largest minus the smallest of these; 0 if there was one.
        runs: How many calls were timed.
        default_s: Seconds of a call of the default in the same rounds. Only the ratio of the two says which point is
            better, as the seconds depend on what runs around the kernel.
        wins: Whether the point beat the default in every block by more than noise, and the network was faster with it.
            At most one point of a session wins.
        measured_at: When, as `time.time()`.
        failed: Whether it crashed or hung the measuring process. Such a point has no times, and is not tried again.
    """

    task: TuningTask
    point: Mapping[str, int]
    seconds: float
    spread: float
    runs: int
    default_s: float
    wins: bool
    measured_at: float
    failed: bool = False

    @staticmethod
    def of_failure(task: TuningTask, point: Mapping[str, int], measured_at: float) -> Record:
        """Return the record of a point that failed."""
        return Record(
            task=task,
            point=point,
            seconds=0.0,
            spread=0.0,
            runs=0,
            default_s=0.0,
            wins=False,
            measured_at=measured_at,
            failed=True,
        )

    @property
    def ratio(self) -> float:
        """Its time over that of the default."""
        if self.failed:
            return inf
        return self.seconds / self.default_s if self.default_s else 1.0

    def as_line(self) -> str:
        """Return it as a line of text, without the newline."""
        data = {
            "task": self.task.as_data(), "point": dict(self.point), "seconds": self.seconds, "spread": self.spread,
            "runs": self.runs, "default_s": self.default_s, "wins": self.wins, "measured_at": self.measured_at,
            "failed": self.failed,
        }  # fmt: skip
        return with_sum(data)

    @staticmethod
    def from_line(line: str) -> Record:
        """Return what `as_line` returned.

        Raises:
            ValueError: It did not, or the line is damaged.
        """
        fields = checked_fields(line)
        return Record(
            task=TuningTask.from_data(fields.fields("task")),
            point=fields.counts("point"),
            seconds=fields.seconds("seconds"),
            spread=fields.seconds("spread"),
            runs=fields.count("runs"),
            default_s=fields.seconds("default_s"),
            wins=fields.flag("wins"),
            measured_at=fields.seconds("measured_at"),
            failed="failed" in fields.data and fields.flag("failed"),  # older records do not say it
        )


@dataclass(frozen=True)
class ReadLines:
    """The records in some lines, and the number of damaged lines."""

    records: tuple[Record, ...]
    damaged: int


def read_lines(lines: Iterable[str]) -> ReadLines:
    """Return the records in `lines`; damaged lines are skipped."""
    records, damaged = [], 0
    for line in filter(str.strip, lines):
        try:
            records.append(Record.from_line(line))
        except ValueError:
            damaged += 1
    return ReadLines(tuple(records), damaged)


def with_sum(data: Mapping[str, Any]) -> str:
    """Return `data` as JSON text with a checksum."""
    return canonical({**data, _SUM: sum_of(data)})


def checked_fields(line: str) -> Fields:
    """Return the data that `with_sum` wrote, after checking the checksum.

    Raises:
        ValueError: It did not, or the line is damaged.
    """
    try:
        fields = Fields.of(json.loads(line))
        expected = sum_of({name: value for name, value in fields.data.items() if name != _SUM})
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    if fields.text(_SUM) != expected:
        raise ValueError("its sum does not match")
    return fields


def sum_of(data: Mapping[str, Any]) -> str:
    """Return the checksum of `data`."""
    return hashlib.sha256(canonical(data).encode()).hexdigest()[:_DIGITS]
