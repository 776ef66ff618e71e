"""Placements of a segment's tasks: what each takes in the orders that were tried, and what no order is below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, product

import numpy as np

from placement.problem import PlacementProblem

_MOST_ORDERS = 1000
"""Of a segment's tasks, that are all tried: an inception block of GoogLeNet has 630."""


@dataclass
class SegmentPlacements:
    """Placements of a segment, each a row: the device of its entry, then of its tasks in the order of the graph.

    Attributes:
        problem: The segment as a problem of its own, its entry the first task if it has one.
        has_entry, has_end: Whether other segments are before and behind it.
        rows: Devices; of a segment without entry, the first of each says nothing.
        lengths: The least that was found from the end of the entry to that of the last task, in seconds.
        lowest: What no order of the tasks is below.
    """

    problem: PlacementProblem
    has_entry: bool
    has_end: bool
    rows: np.ndarray
    lengths: np.ndarray = field(init=False)
    lowest: np.ndarray = field(init=False)
    _orders: list[Sequence[int]] = field(default_factory=list, init=False)
    _order: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.tasks = self.problem.tasks[self.has_entry :]
        self.lengths = np.full(len(self.rows), np.inf)
        self._order = np.zeros(len(self.rows), dtype=np.intp)
        self._latency, self._per_byte = np.array(self.problem.latency), np.array(self.problem.per_byte)
        seconds, heads, tails = self._paths(self.rows)
        self.lowest = (heads + seconds + tails).max(axis=1)

    def between(self, values: np.ndarray) -> np.ndarray:
        """Return the least of `values`, one for each placement, from the device of the entry (row) to that of the end
        (column); to all alike where the segment has no end."""
        devices = len(self.problem.devices)
        found = np.full((devices, devices), np.inf)
        np.minimum.at(found, (self.rows[:, 0], self.rows[:, -1]), values)
        return found if self.has_end else np.repeat(found.min(axis=1)[:, None], devices, axis=1)

    def best(self, entry: int, end: int) -> tuple[np.ndarray, Sequence[int]]:
        """Return the devices of the tasks of the shortest placement from one device to another, and their order."""
        fits = self.rows[:, 0] == entry
        if self.has_end:
            fits &= self.rows[:, -1] == end
        row = int(np.where(fits, self.lengths, np.inf).argmin())
        return self.rows[row, 1:], self._orders[self._order[row]]

    def try_orders(self, *orders: Sequence[int]) -> None:
        """Note what all placements take if each device runs its tasks in one of these orders."""
        for order in orders:
            self._try_order([task for task in order if task in self.tasks], np.arange(len(self.rows)))

    def try_all_orders(self, which: np.ndarray) -> None:
        """Find the best order of each of the placements `which`, if the tasks have few enough orders to try all."""
        orders = list(islice(self._every_order([], set(range(self.has_entry))), _MOST_ORDERS + 1))
        if len(orders) > _MOST_ORDERS:
            return
        for order in orders:
            self._try_order(order, which)
        self.lowest[which] = self.lengths[which]

    def bound(self, which: np.ndarray) -> None:
        """Let `lowest` of the placements `which` count that a device runs its tasks one after the other.

        Of any tasks of one device the first begins when what it reads can be there, and the last is followed by what
        waits for it. The sets of tasks that matter are those with at least the head of one task and at least the tail
        of another (Carlier 1982).
        """
        rows = self.rows[which]
        seconds, heads, tails = self._paths(rows)
        found = self.lowest[which]
        for first, last in product(range(len(self.tasks)), repeat=2):
            device = rows[:, 1 + first]
            taken = (rows[:, 1:] == device[:, None]) & (heads >= heads[:, [first]]) & (tails >= tails[:, [last]])
            whole = heads[:, first] + np.where(taken, seconds, 0.0).sum(axis=1) + tails[:, last]
            np.maximum(found, np.where(taken.any(axis=1), whole, 0.0), out=found)
        self.lowest[which] = np.minimum(found, self.lengths[which])  # other sums may be above by their rounding

    def _try_order(self, order: Sequence[int], which: np.ndarray) -> None:
        found = self._ends(order, self.rows[which])
        better = found < self.lengths[which]
        self._orders.append(tuple(order))
        self._order[which[better]] = len(self._orders) - 1
        self.lengths[which[better]] = found[better]

    def _every_order(self, order: list[int], there: set[int]) -> Iterator[Sequence[int]]:
        if len(order) == len(self.tasks):
            yield tuple(order)
        for task in self.tasks:
            if task not in there and all(producer in there for producer, _ in self.problem.producers[task]):
                yield from self._every_order([*order, task], there | {task})

    def _ends(self, order: Sequence[int], rows: np.ndarray) -> np.ndarray:
        """Return for each of `rows` when the last task ends."""
        every, free = np.arange(len(rows)), np.zeros((len(rows), len(self.problem.devices)))
        ends, seconds = {0: np.zeros(len(rows))} if self.has_entry else {}, np.array(self.problem.seconds)
        for task in order:
            device = rows[:, self._column(task)]
            start = free[every, device]
            for producer, size in self.problem.producers[task]:
                start = np.maximum(start, ends[producer] + self._copied(rows, producer, task, size))
            free[every, device] = ends[task] = start + seconds[task, device]
        found: np.ndarray = free.max(axis=1)
        return found

    def _column(self, task: int) -> int:
        return task if self.has_entry else task + 1

    def _copied(self, rows: np.ndarray, source: int, target: int, size: float) -> np.ndarray:
        """Return what the copy of a result takes, 0 where it stays."""
        way = rows[:, self._column(source)], rows[:, self._column(target)]
        found: np.ndarray = self._latency[way] + size * self._per_byte[way]
        return found

    def _paths(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return what each task takes (column) in each of `rows`, when it can begin, and what must follow its end."""
        seconds = np.array(self.problem.seconds)[np.array(self.tasks), rows[:, 1:]]
        heads, tails, first = np.zeros(seconds.shape), np.zeros(seconds.shape), self.tasks.start
        copies = [
            (source - first, target - first, self._copied(rows, source, target, size))
            for target in self.tasks
            for source, size in self.problem.producers[target]
        ]
        for source, target, copied in copies:
            ready = copied if source < 0 else heads[:, source] + seconds[:, source] + copied
            np.maximum(heads[:, target], ready, out=heads[:, target])
        for source, target, copied in reversed(copies):
            if source >= 0:
                rest = copied + seconds[:, target] + tails[:, target]
                np.maximum(tails[:, source], rest, out=tails[:, source])
        return seconds, heads, tails
