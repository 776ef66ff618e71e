"""Searches that are run again over points that were measured: each sees what it would have measured, with noise, and is
judged by what the points take."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bench.tuning.regret import Judged
from tuning.record import Record
from tuning.search import Search, key_of
from tuning.task import ALONE, Environment, TuningTask

NOISE = 0.02
"""Deviation of the logarithms of what a search sees."""
ROUND = 4
"""Points of a kernel that are measured before the search is asked again."""

_TASK = TuningTask(ALONE, "", "", (), Environment("", "", 1, {}))


def by_search(
    kernel: Judged, seed: int, most: int, batch: int = ROUND, begins: Sequence[int] = ()
) -> list[int]:
    """Return the places of the points that a search measures, in order, the default's first; `most` at most.

    Args:
        begins: The places of points that are measured before the search is asked.
    """
    rng = np.random.default_rng(seed)
    seconds = np.array(kernel.space.seconds) * np.exp(NOISE * rng.standard_normal(len(kernel.space.seconds)))
    cycles = np.maximum(np.array(kernel.cycles), 1.0)
    search = Search(kernel.points, np.log(cycles / cycles[0]))
    place_of = {key_of(point): place for place, point in enumerate(kernel.points)}
    order = [0, *begins][:most]
    records = [_record(kernel, place, seconds) for place in order[1:]]
    while len(order) < most:
        offers = search.offers(records, min(batch, most - len(order)))
        if not offers:
            break
        for offer in offers:
            place = place_of[key_of(offer.point)]
            order.append(place)
            records.append(_record(kernel, place, seconds))
    return order


def by_chance(kernel: Judged, seed: int, most: int) -> list[int]:
    """Return the places of the default and of points that are drawn."""
    drawn = 1 + np.random.default_rng(seed).permutation(len(kernel.points) - 1)
    return [0, *map(int, drawn[: most - 1])]


def by_tables(kernel: Judged, seed: int, most: int) -> list[int]:
    """Return the places of the default and of the points with the least estimates."""
    return list(map(int, np.argsort(kernel.by_tables, kind="stable")[:most]))


def _record(kernel: Judged, place: int, seconds: Sequence[float] | np.ndarray) -> Record:
    return Record(
        task=_TASK,
        point=kernel.points[place].axes(),
        seconds=float(seconds[place]),
        spread=0.0,
        runs=1,
        default_s=float(seconds[0]),
        wins=False,
        measured_at=0.0,
    )
