"""The two forms of a chain of anchors, one kernel and several: a task of two points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tuning.decide import Decision
from tuning.known import newest, ranked
from tuning.record import Record
from tuning.task import TuningTask

TOGETHER, APART = "together", "apart"
_FUSED: Mapping[str, Mapping[str, int]] = {TOGETHER: {"fused": 1}, APART: {"fused": 0}}
"""The point of each form."""


@dataclass(frozen=True)
class ChainForms:
    """What is known of them.

    Attributes:
        task: The question.
        estimated: Why several kernels are faster by estimate; "" where one is.
        records: The newest of each form.
    """

    task: TuningTask
    estimated: str
    records: tuple[Record, ...]

    @property
    def names(self) -> tuple[str, str]:
        """The form that is faster by estimate, and the other."""
        return (APART, TOGETHER) if self.estimated else (TOGETHER, APART)

    @property
    def are_known(self) -> bool:
        """Whether both were measured."""
        return all(self._of(name) is not None for name in self.names)

    @property
    def times(self) -> str:
        """What they took, as text."""
        found = [(name, self._of(name)) for name in self.names]
        return ", ".join(f"{record.seconds * 1e6:.1f} us {name}" for name, record in found if record is not None)

    @property
    def reason(self) -> str:
        """Why several kernels are faster; "" where one is."""
        usual, other = self.names
        wins = ranked(self.records)
        if not self.are_known or not wins or wins[0].point == _FUSED[usual]:
            return self.estimated
        return f"measured {self.times}" if other == APART else ""

    def decided(self, decision: Decision, measured_at: float) -> Sequence[Record]:
        """Return what was measured of them, the form that is faster by estimate as candidate 0."""
        return list(self._records(decision, measured_at))

    def with_records(self, added: Sequence[Record]) -> ChainForms:
        """Return them with what was measured since."""
        return ChainForms(self.task, self.estimated, newest((*self.records, *added)))

    def _records(self, decision: Decision, measured_at: float) -> Iterator[Record]:
        for found in decision.times:
            yield Record(
                task=self.task,
                point=_FUSED[self.names[found.candidate]],
                seconds=found.seconds,
                spread=found.spread,
                runs=found.runs,
                default_s=found.default_s,
                wins=0 < found.candidate == decision.candidate,
                measured_at=measured_at,
            )

    def _of(self, name: str) -> Record | None:
        return next((record for record in self.records if record.point == _FUSED[name]), None)
