"""A search finds the best point of a space with few measurements, ends where nothing is to gain, and tries no point
again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import exp, log2
from types import SimpleNamespace

import numpy as np
import pytest

from tests.tuning.records import task
from tuning.budget import allot, expected_gain
from tuning.kernel_search import KernelSearch
from tuning.record import Record
from tuning.search import Offer, Search, key_of

TASK = task("a")


@dataclass(frozen=True)
class Cut:
    height: int
    chunks: int
    cycles: float

    def axes(self) -> Mapping[str, int]:
        return {"height": self.height, "chunks": self.chunks}


def ratio(point: Cut) -> float:
    """What it takes: least at 28 and 8, unlike what the estimates say."""
    return exp(0.15 * abs(log2(point.height / 28)) + 0.08 * abs(log2(point.chunks / 8)))


POINTS = [Cut(height, chunks, 1000.0 + 10 * height) for height in range(8, 40) for chunks in (1, 2, 4, 8, 16)]
SEARCH = Search(POINTS, np.log([point.cycles / POINTS[0].cycles for point in POINTS]))


def record(point: Cut, took: float, failed: bool = False) -> Record:
    if failed:
        return Record.of_failure(TASK, point.axes(), 1.0)
    return Record(TASK, point.axes(), took, 0.0, 5, 1.0, wins=False, measured_at=1.0)


def searched(took: Callable[[Cut], float], rounds: int) -> list[Record]:
    records = list[Record]()
    for _ in range(rounds):
        offers = SEARCH.offers(records, 4)
        if not offers:
            break
        records += [record(offer.point, took(offer.point)) for offer in offers]  # type: ignore[arg-type]
    return records


def test_it_finds_what_the_estimates_do_not_know() -> None:
    relative = {key_of(point): ratio(point) / ratio(POINTS[0]) for point in POINTS}
    records = searched(lambda point: relative[key_of(point)], 8)
    assert len({str(dict(each.point)) for each in records}) == len(records) <= 32
    assert min(each.seconds for each in records) <= 1.02 * min(relative.values())
    by_estimate = sorted(POINTS, key=lambda point: point.cycles)[: len(records)]
    assert min(relative[key_of(point)] for point in by_estimate) > 1.05 * min(relative.values())


def test_the_same_records_give_the_same_points() -> None:
    records = [record(POINTS[7], 0.9), record(POINTS[50], 1.1)]
    assert SEARCH.offers(records, 5) == SEARCH.offers(list(reversed(records)), 5)


def test_it_ends_where_the_estimates_are_right() -> None:
    records = searched(lambda point: point.cycles / POINTS[0].cycles, 40)
    assert len(records) < 80
    assert not SEARCH.offers(records, 4)


def test_points_that_failed_or_are_left_out_are_not_offered() -> None:
    first = SEARCH.offers([], 4)
    failed = [record(offer.point, 0.0, failed=True) for offer in first[:2]]  # type: ignore[arg-type]
    left_out = {key_of(first[2].point)}
    again = {key_of(offer.point) for offer in SEARCH.offers(failed, 40, left_out)}
    assert not again & {key_of(offer.point) for offer in first[:3]}
    assert key_of(first[3].point) in again


def test_a_space_of_one_point_offers_none() -> None:
    assert Search(POINTS[:1], np.zeros(1)).offers([], 4) == []


@pytest.mark.parametrize("most", [0, 1, 3])
def test_time_goes_where_it_gains_most(most: int) -> None:
    offers = {
        "large": [Offer(POINTS[1], 0.10), Offer(POINTS[2], 0.02)],
        "small": [Offer(POINTS[3], 0.50)],
        "none": [],
    }
    shares = {"large": 0.8, "small": 0.1, "none": 0.1}
    taken = allot(offers, shares, most)
    assert [(name, offer.gain) for name, some in taken.items() for offer in some] == [
        [], [("large", 0.10)], [], [("large", 0.10), ("large", 0.02), ("small", 0.50)],
    ][most]  # fmt: skip
    assert expected_gain(offers, shares) == pytest.approx(0.8 * 0.1 + 0.1 * 0.5)


class Exhausted:
    """A search that has nothing to offer, and counts how often it is asked."""

    asked = 0

    def offers(self, *_: object) -> list[Offer]:
        self.asked += 1
        return []


def test_a_search_without_offers_is_asked_again_once_more_is_known() -> None:
    """A job looks at each kernel several times a round."""
    counting, known = Exhausted(), SimpleNamespace(records=(), with_records=lambda records: known)
    search = KernelSearch(known, counting)  # type: ignore[arg-type]
    for _ in range(3):
        assert search.offers(4) == []
    assert counting.asked == 1
    search.keep([])
    search.offers(4)
    assert counting.asked == 2
