"""Rounds and decisions, with a timer that knows what each candidate takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count

import pytest

from tuning.decide import decide
from tuning.rounds import BLOCKS, SCREENING, Choice, Rounds, Times, time_of

Step = tuple[int, int]


def never() -> bool:
    return False


def rounds_of(
    kernels: list[int], run: Callable[[int, int], float], over: Callable[[], bool] = never, evenly: int = 0
) -> Rounds:
    """Return rounds of which `run` says what a step takes with a candidate."""

    def turns(some: Sequence[Choice]) -> Iterator[list[float]]:
        for turn in some:
            if over():
                return
            yield [run(step, candidate) for step, candidate in enumerate(turn)]

    return Rounds(kernels, turns, over, evenly)


def choices(kernels: list[int], candidates: list[list[int]], seconds: Mapping[Step, float]) -> list[int]:
    """Return the candidate that each kernel gets where `seconds` says what a step takes with a candidate."""
    rounds = rounds_of(kernels, lambda step, candidate: seconds[step, candidate])
    return [decide(times, 1).candidate for times in rounds.compare(candidates)]


def test_the_fastest_candidate_of_all_uses_of_a_kernel_wins() -> None:
    # Candidate 1 is best for the first use alone, candidate 2 for both together.
    seconds = {(0, 0): 3.0, (0, 1): 1.0, (0, 2): 1.5, (1, 0): 3.0, (1, 1): 4.0, (1, 2): 1.0, (2, 0): 1.0}
    assert choices([0, 0, 1], [[0, 1, 2], [0]], seconds) == [2, 0]


def test_a_gain_within_the_noise_changes_nothing() -> None:
    assert choices([0], [[0, 1]], {(0, 0): 1.0, (0, 1): 0.99}) == [0]


def test_a_candidate_must_win_in_every_block() -> None:
    default = Times(1.0, [1.0] * BLOCKS)
    assert decide({0: default, 1: Times(0.5, [0.5] * (BLOCKS - 1) + [1.0])}, 1).candidate == 0
    assert decide({0: default, 1: Times(0.5, [0.5] * (BLOCKS - 1))}, 1).candidate == 0
    assert decide({0: default, 1: Times(0.5, [0.5] * BLOCKS)}, 1).candidate == 1


def test_a_candidate_is_measured_with_the_best_of_its_neighbours() -> None:
    """Kernel 1 is fast with candidate 1 only behind kernel 0's candidate 0, which is the slower one by far."""
    last: dict[int, int] = {}

    def run(step: int, candidate: int) -> float:
        last[step] = candidate
        if step == 0:
            return 2.0 - candidate
        return {(0, 1): 0.1, (1, 1): 2.0}.get((last[0], candidate), 1.0)

    rounds = rounds_of([0, 1], run)
    assert [decide(times, 1).candidate for times in rounds.compare([[0, 1], [0, 1]])] == [1, 0]
    assert rounds.check([0, 0], [1, 0]) == (3.0, 2.0)


def test_candidates_take_turns() -> None:
    runs = Counter[Step]()

    def run(step: int, candidate: int) -> float:
        runs[step, candidate] += 1
        return 1.0 + candidate

    rounds_of([0, 1], run).compare([[0, 1, 2], [0, 1]])
    assert runs[0, 1] == runs[0, 2] == 5, "what screening finds slower is not run again"


def test_a_candidate_is_screened_behind_several_of_its_neighbours() -> None:
    """What ran before a kernel decides what it finds in the caches: no candidate has the same neighbour each time."""
    pairs: list[tuple[int, int]] = []

    def run(step: int, candidate: int) -> float:
        if step == 0:
            pairs.append((candidate, -1))
        else:
            pairs[-1] = (pairs[-1][0], candidate)
        return 1.0

    rounds_of([0, 1], run, evenly=8).compare([list(range(9)), list(range(9))])
    met = {candidate: [before for before, behind in pairs if behind == candidate] for candidate in range(9)}
    assert all(len(before) == len(set(before)) == 8 for before in met.values())


def test_what_cannot_win_any_more_is_not_run_again() -> None:
    """Candidate 1 is the fastest; 2 is a bit slower than it, and 3 was fast in the first runs only."""
    runs = Counter[int]()

    def run(step: int, candidate: int) -> float:
        runs[candidate] += 1
        return {0: 1.0, 1: 0.7, 2: 0.9, 3: 0.8 if runs[3] <= SCREENING else 1.1}[candidate]

    (both,) = rounds_of([0], run).compare([[0, 1, 2]])
    assert [len(both[each].blocks) for each in range(3)] == [BLOCKS, BLOCKS, 1]
    assert decide(both, 1).candidate == 1
    (late,) = rounds_of([0], run).compare([[0, 3]])
    assert [len(late[each].blocks) for each in (0, 3)] == [1, 1], "nothing is left to be compared"


@pytest.mark.parametrize("most", [0, 3, 40])
def test_what_is_not_finished_in_time_changes_nothing(most: int) -> None:
    ticks = count()
    rounds = rounds_of([0], lambda step, candidate: 2.0 - candidate, lambda: next(ticks) >= most)
    (times,) = rounds.compare([[0, 1]])
    assert decide(times, 1).candidate == 0


@pytest.mark.parametrize("late", [0, 1])
def test_a_kernel_has_times_once_all_its_candidates_ran(late: int) -> None:
    """A default without a time has no ratio to others, and one that is known is not measured again."""
    times = {0: Times(1.0), 1: Times(2.0)}
    assert [found.seconds for found in decide(times, 2).times] == [0.5, 1.0]
    assert decide({**times, late: Times(float("inf"))}, 2).times == ()


def test_without_time_the_network_is_not_known() -> None:
    assert rounds_of([0], lambda step, candidate: 1.0, lambda: True).check([0], [1]) == (float("inf"), float("inf"))


def test_where_all_are_to_be_known_alike_the_best_runs_no_oftener() -> None:
    runs = Counter[int]()

    def run(step: int, candidate: int) -> float:
        runs[candidate] += 1
        return 1.0 - candidate / 4

    (times,) = rounds_of([0], run, evenly=7).compare([[0, 1, 2]])
    assert runs == {0: 7, 1: 7, 2: 7}
    assert [(found.seconds, found.default_s, found.runs) for found in decide(times, 1).times] == [
        (1.0, 1.0, 7), (0.75, 1.0, 7), (0.5, 1.0, 7)
    ]  # fmt: skip


def test_one_run_that_was_faster_by_chance_is_not_what_a_candidate_takes() -> None:
    assert [time_of(seconds) for seconds in ([], [2.0], [3.0, 1.0, 2.0, 2.5, 9.0])] == [float("inf"), 2.0, 2.0]
