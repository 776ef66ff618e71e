"""What was measured of a point, as a line of JSON that tells where it is damaged."""

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
"""Of the sha256 that a line ends with: it is to find damage, not forgery."""


@dataclass(frozen=True)
class Record:
    """A measurement.

    Attributes:
        task: The question.
        point: What it was measured at: `Point.axes`, or a form of a chain.
        seconds: Of a call: the median of blocks of rounds.
        spread: From the least of these to the greatest; 0 where there was one.
        runs: How many calls were timed.
        default_s: What the default took in the same rounds. Only their ratio says which point is better: the seconds
            depend on what was around the kernel.
        wins: Whether it beat the default in every block by more than noise, and so did the network with it: at most one
            point of a session does.
        measured_at: When, as `time.time` tells it.
        failed: Whether it ended the process that measures, or did not come back: then nothing else was measured of it,
            and nobody tries it again.
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
        """Return that a point failed."""
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
        """What it took of the default's time."""
        if self.failed:
            return inf
        return self.seconds / self.default_s if self.default_s else 1.0

    def as_line(self) -> str:
        """Return it as text, without the end of a line."""
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
    """What lines hold: records, and how many lines are none."""

    records: tuple[Record, ...]
    damaged: int


def read_lines(lines: Iterable[str]) -> ReadLines:
    """Return the records of `lines`; one that is damaged costs itself only."""
    records, damaged = [], 0
    for line in filter(str.strip, lines):
        try:
            records.append(Record.from_line(line))
        except ValueError:
            damaged += 1
    return ReadLines(tuple(records), damaged)


def with_sum(data: Mapping[str, Any]) -> str:
    """Return `data` as text that tells where it is damaged."""
    return canonical({**data, _SUM: sum_of(data)})


def checked_fields(line: str) -> Fields:
    """Return the data of what `with_sum` returned, with its sum.

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
    """Return what the line of `data` ends with."""
    return hashlib.sha256(canonical(data).encode()).hexdigest()[:_DIGITS]
