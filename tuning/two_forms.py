"""Two forms of a part of a model, of which a compilation takes one: a task of two points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tuning.decide import Decision
from tuning.known import newest, ranked
from tuning.record import Record
from tuning.task import TuningTask


@dataclass(frozen=True)
class TwoForms:
    """What is known of them.

    Attributes:
        task: The question.
        axis: What the points choose, by 0 or 1.
        names: What the form with 0 is called, and that with 1.
        estimated: Which of them is faster by estimate.
        records: The newest of each form.
    """

    task: TuningTask
    axis: str
    names: tuple[str, str]
    estimated: int
    records: tuple[Record, ...]

    @property
    def order(self) -> tuple[int, int]:
        """The form that is faster by estimate, and the other."""
        return self.estimated, 1 - self.estimated

    @property
    def are_known(self) -> bool:
        """Whether both were measured."""
        return all(self._of(form) is not None for form in self.order)

    @property
    def times(self) -> str:
        """What they took, as text."""
        found = [(self.names[form], self._of(form)) for form in self.order]
        return ", ".join(f"{record.seconds * 1e6:.1f} us {name}" for name, record in found if record is not None)

    @property
    def chosen(self) -> int:
        """The form that was measured to be faster; else the one that is by estimate."""
        best = [record.point for record in ranked(self.records)[:1]] if self.are_known else []
        return next((form for form in self.order if self._point(form) in best), self.estimated)

    def decided(self, decision: Decision, measured_at: float) -> Sequence[Record]:
        """Return what was measured of them, the form that is faster by estimate as candidate 0."""
        return list(self._records(decision, measured_at))

    def with_records(self, added: Sequence[Record]) -> TwoForms:
        """Return them with what was measured since."""
        records = newest((*self.records, *added))
        return TwoForms(self.task, self.axis, self.names, self.estimated, records)

    def _records(self, decision: Decision, measured_at: float) -> Iterator[Record]:
        for found in decision.times:
            wins = 0 < found.candidate == decision.candidate
            yield found.record(self.task, self._point(self.order[found.candidate]), wins=wins, measured_at=measured_at)

    def _point(self, form: int) -> Mapping[str, int]:
        return {self.axis: form}

    def _of(self, form: int) -> Record | None:
        return next((record for record in self.records if record.point == self._point(form)), None)
