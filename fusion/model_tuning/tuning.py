"""What `fusion.tune` returns: what it measured, and what became of each model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusion.report.tuning_page import write_tuning_page

if TYPE_CHECKING:
    from fusion.compiled_module import CompiledModule
    from tuning.network_times import NetworkTimes
    from tuning.study import TuningStudy


@dataclass
class TunedModel:
    """A model of a job.

    Attributes:
        name: Of its file.
        compile: Compiles it with what is known now.
        kernels: How many have points to choose from.
        points: Of them, measured by this call.
        times: What a run takes at the defaults of all kernels and at the best points; None where that was not measured.
        expected: Share by which the next points are expected to make it faster; 0 where the search is over.
        note: Why it is not tuned; "" where it is.
    """

    name: str
    compile: Callable[[], CompiledModule] = field(repr=False)
    kernels: int = 0
    points: int = 0
    times: NetworkTimes | None = None
    expected: float = 0.0
    note: str = ""

    @cached_property
    def module(self) -> CompiledModule:
        """The module with the best points, which is compiled when it is first asked for."""
        return self.compile()

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data."""
        times = None if self.times is None else asdict(self.times)
        return {
            "name": self.name, "kernels": self.kernels, "points": self.points, "times": times,
            "expected": self.expected, "note": self.note,
        }  # fmt: skip

    def __str__(self) -> str:
        if self.note:
            return f"{self.name}: {self.note}"
        return f"{self.name}: {self._took()}; {self.points} points of {self.kernels} kernels measured, {self._left()}"

    def _took(self) -> str:
        if self.times is None:
            return "what it takes was not measured"
        before, after = self.times.before * 1e3, self.times.after * 1e3
        if self.times.is_clear:
            return f"{before:.3f} ms before, {after:.3f} ms after ({before / after:.2f}x)"
        noise = self.times.spread * 1e3
        return f"{before:.3f} ms before, {after:.3f} ms after: no clear gain, as runs differ by {noise:.3f} ms"

    def _left(self) -> str:
        return f"{self.expected:.1%} more expected" if self.expected else "no more to gain is expected"


@dataclass
class Tuning:
    """What `fusion.tune` has done so far.

    Attributes:
        models: In the order given.
        budget_s: What it may take.
        path: Of the database; "" of one that is no file.
        seconds: It has taken.
        waited_s: Of these, for other processes.
        rounds: Of points that were measured together.
        busy: Of these, measured while others used the machine.
        interrupted: Whether the user ended it.
        lost: Why servers that measured were lost, one text each.
        study: What is known of each kernel; None before the end.
    """

    models: tuple[TunedModel, ...]
    budget_s: float
    path: str
    seconds: float = 0.0
    waited_s: float = 0.0
    rounds: int = 0
    busy: int = 0
    interrupted: bool = False
    lost: list[str] = field(default_factory=list)
    study: TuningStudy | None = field(default=None, repr=False)

    @property
    def points(self) -> int:
        """How many points it has measured."""
        return sum(model.points for model in self.models)

    def explain_html(self, path: str | Path) -> None:
        """Write a page of what was measured, needing nothing else: times of models and families as they fell, what was
        expected of points, where the time went, and the best points.

        Raises:
            OptionError: The file cannot be written, or the job ended before its models were lowered.
        """
        write_tuning_page(self.study, path, self.lines())

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "models": [model.as_data() for model in self.models], "budget_s": self.budget_s, "path": self.path,
            "seconds": self.seconds, "waited_s": self.waited_s, "rounds": self.rounds, "busy": self.busy,
            "interrupted": self.interrupted, "points": self.points, "lost": self.lost,
        }  # fmt: skip

    def lines(self) -> list[str]:
        """Return it in words: a line for each model, and what is to be known of the measurements."""
        return [*map(str, self.models), *self._remarks()]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def _remarks(self) -> Iterator[str]:
        yield f"{self.points} points were measured in {self.seconds:.0f} s of {self.budget_s:.0f}"
        if self.waited_s >= 1:
            yield f"{self.waited_s:.0f} s of these went by in waiting for other processes"
        if self.busy:
            yield (
                f"{self.busy} of {self.rounds} rounds of points were measured while others used the machine: they are "
                "less sure, and so are the times above"
            )
        for why in self.lost:
            yield f"a server was lost, and others went on with what it was to measure: {why}"
        if self.interrupted:
            yield "it was interrupted: all points of whole rounds are kept, and the same call goes on there"
