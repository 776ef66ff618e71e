"""What modules are said to take does not follow from which others take turns with them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from fusion.placing import compare
from tuning.decide import decide
from tuning.messages import Answer, Trial, Trying


class Machine:
    """One with a clock of its own, on which what runs behind something else is slower at first."""

    def __init__(self) -> None:
        self.now, self.last, self.counts = 0.0, -1, dict[int, int]()

    def runs(self, place: int, seconds: float, cold: float = 0.0) -> Callable[[], None]:
        """Return what takes some seconds, and `cold` more in the first run behind others."""

        def run() -> None:
            self.now += seconds + (cold if self.last != place else 0.0)
            self.last, self.counts[place] = place, self.counts.get(place, 0) + 1

        return run


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(compare, "time", SimpleNamespace(perf_counter=lambda: made.now))
    return made


@pytest.fixture(autouse=True)
def said(monkeypatch: pytest.MonkeyPatch) -> list[Answer]:
    """What is told to the process that asked."""
    answers = list[Answer]()
    monkeypatch.setattr(compare, "say", answers.append)
    return answers


@pytest.mark.parametrize("default", ["slow", "usual"])
def test_what_runs_behind_a_slow_one_is_as_fast_as_alone(default: str, machine: Machine) -> None:
    """The default has a turn in each block, however slow it is."""
    quick, usual, slow = machine.runs(0, 7e-6, cold=1e-4), machine.runs(1, 2e-5), machine.runs(2, 0.05)
    runs = {0: usual, 1: quick, 2: slow} if default == "usual" else {0: slow, 1: quick, 2: usual}
    decision = decide(compare.compare(runs, 1.0), 1)
    assert decision.candidate == 1
    assert decision.seconds == pytest.approx(7e-6)
    assert decision.times[2].seconds == pytest.approx(0.05 if default == "usual" else 2e-5)
    assert machine.now < 2.0


def test_a_hopeless_one_takes_no_turns_in_blocks(machine: Machine) -> None:
    runs = {0: machine.runs(0, 2e-4), 1: machine.runs(1, 0.02), 2: machine.runs(2, 1.5e-4)}
    decision = decide(compare.compare(runs, 0.4), 1)
    assert decision.candidate == 2
    assert machine.counts[1] == 2
    assert decision.times[1].seconds == pytest.approx(0.02)
    assert decision.times[1].default_s == pytest.approx(2e-4)


def test_what_may_be_long_is_said_before_each_run(said: list[Answer], machine: Machine) -> None:
    compare.compare({0: machine.runs(0, 0.3), 1: machine.runs(1, 0.32)}, 0.0)
    trying = [each.trial for each in said if isinstance(each, Trying)]
    assert trying == [Trial(0, place) for place in (0, 0, 1, 1, *((0, 1) * 4))]
