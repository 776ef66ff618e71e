"""The cheapest cover of a graph by candidates: a shortest path over covered sets.

Collage (arXiv 2111.00655) and the redesign of it for TVM (RFC 0062) search the same graph; here a state also has where
the values lie that are still to be read, so that what moving them takes is exact, and a step takes only a candidate of
which everything it reads is there, so that no cover has a cycle.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fusion.declined import Declined
from placement.cover.problem import HOST, Cover, CoverProblem
from placement.cover.tables import CandidateBits, CoverTables, bits_of

LIMIT = 500
"""States of as many operators that are followed; with ten times that, some hundred operators take minutes."""
_COMPARED = 4
"""Cheaper states of the same operators that one is compared with."""
_FIRST = 16
"""States that the first search follows, whose cover tells the second one what is too dear."""


def find_cover(problem: CoverProblem, limit: int = LIMIT) -> Cover:
    """Return the cheapest cover; `is_exact` and `bound` say how near the best it is where there were more than `limit`
    states to follow.

    Raises:
        Declined: Nothing covers an operator.
    """
    tables = CoverTables(problem)
    for operator, candidates in enumerate(tables.by_operator):
        if not candidates:
            raise Declined(f"no backend takes operator {operator}")
    narrow = _Search(tables, _FIRST)
    found = narrow.run()
    if narrow.dropped < found.seconds and limit > _FIRST:
        wide = _Search(tables, limit, most=found.seconds)
        better = wide.run()
        found = better if better.seconds <= found.seconds else Cover(found.chosen, found.seconds, better.bound)
    if not found.chosen and tables.all:
        raise Declined("no candidates together are the graph; give each operator one of its own")
    return found


@dataclass(frozen=True)
class _State:
    """Some subgraphs that have run.

    Attributes:
        covered: Their operators.
        lying: Values that are to be read, by the backend they are at; those of the host are not noted.
        seconds: What they took.
        rest: What the others take at least.
        last: The candidate that ran last, and the state before; None at the start.
    """

    covered: int
    lying: tuple[int, ...]
    seconds: float
    rest: float
    last: tuple[int, _State] | None = None


@dataclass
class _Search:
    """One search, by the number of operators that are covered.

    Attributes:
        limit: States of as many operators that are followed.
        most: What is no cheaper is not followed.
        dropped: Least seconds that a cover through a state which was not followed may take.
    """

    tables: CoverTables
    limit: int
    most: float = math.inf
    dropped: float = math.inf
    _layers: list[dict[tuple[int, tuple[int, ...]], _State]] = field(default_factory=list, init=False)

    def run(self) -> Cover:
        """Return the best cover found; none, of infinite seconds, where no path got to the end."""
        size = len(self.tables.by_operator)
        self._layers = [{} for _ in range(size + 1)]
        start = _State(0, (0,) * len(self.tables.problem.calls), 0.0, sum(self.tables.shares))
        self._layers[0][start.covered, start.lying] = start
        for layer in self._layers[:size]:
            for state in self._followed(layer):
                for candidate in self._next(state.covered):
                    self._add(self._after(state, candidate))
            layer.clear()
        ends = sorted(self._layers[size].values(), key=lambda state: state.seconds)
        if not ends:
            return Cover((), math.inf, min(self.dropped, self.most))
        return Cover(tuple(_path(ends[0])), ends[0].seconds, min(self.dropped, ends[0].seconds))

    def _followed(self, layer: dict[tuple[int, tuple[int, ...]], _State]) -> Sequence[_State]:
        states = list(self._undominated(layer))
        if len(states) <= self.limit:
            return states
        kept = heapq.nsmallest(self.limit + 1, states, key=lambda state: state.seconds + state.rest)
        self.dropped = min(self.dropped, kept[-1].seconds + kept[-1].rest)
        return kept[:-1]

    def _undominated(self, layer: dict[tuple[int, tuple[int, ...]], _State]) -> Iterator[_State]:
        """Yield the states of which no cheaper one with the same operators costs less even if each value that lies
        elsewhere there has to be moved by all its readers.

        Where moving a value takes a tenth of an operator, it leaves a third of the states of BERT-base.
        """
        by_covered: dict[int, list[_State]] = {}
        for state in sorted(layer.values(), key=lambda state: state.seconds):
            kept = by_covered.setdefault(state.covered, [])
            if not any(self._dominates(other, state) for other in kept[:_COMPARED]):
                kept.append(state)
                yield state

    def _dominates(self, cheap: _State, dear: _State) -> bool:
        room = dear.seconds - cheap.seconds
        differing = 0
        for here, there in zip(cheap.lying, dear.lying, strict=True):
            differing |= here ^ there
        for value in bits_of(differing):
            readers = (self.tables.readers[value] & ~cheap.covered).bit_count()
            room -= readers * self.tables.most_more(value, _place_of(value, cheap), _place_of(value, dear))
            if room < 0:
                return False
        return True

    def _add(self, state: _State) -> None:
        if state.seconds + state.rest > self.most * (1 + 1e-12):
            return
        layer = self._layers[state.covered.bit_count()]
        key = (state.covered, state.lying)
        known = layer.get(key)
        if known is None or state.seconds < known.seconds:
            layer[key] = state

    def _next(self, covered: int) -> Iterator[CandidateBits]:
        """Yield the candidates that may run next: those with the first operator that is not covered, and where one of
        these waits for something, those with the first operator that it waits for.

        The groups of any cover can be run in this order: whatever the first operator's group does not wait for can run
        after it.
        """
        wanted = [_lowest(self.tables.all & ~covered)]
        seen, behind = wanted[0], covered
        for operator in wanted:
            for each in self.tables.by_operator[operator.bit_length() - 1]:
                if each.operators & behind:
                    continue
                waits = each.needs & ~covered
                if not waits:
                    yield each
                elif not (more := _lowest(waits)) & seen:
                    wanted.append(more)
                    seen |= more
            behind |= operator

    def _after(self, state: _State, candidate: CandidateBits) -> _State:
        covered = state.covered | candidate.operators
        seconds, lying = state.seconds + candidate.seconds, list(state.lying)
        move, readers = self.tables.move, self.tables.readers
        for source, values in enumerate(state.lying):
            for value in bits_of(values & candidate.reads):
                seconds += move(value, source, candidate.backend) - move(value, HOST, candidate.backend)
                if not readers[value] & ~covered:
                    lying[source] ^= 1 << value
        if candidate.backend != HOST:
            lying[candidate.backend] |= candidate.makes
        rest = state.rest - self.tables.share_of[candidate.index]
        return _State(covered, tuple(lying), seconds, max(rest, 0.0), (candidate.index, state))


def _place_of(value: int, state: _State) -> int:
    return next((backend for backend, values in enumerate(state.lying) if values >> value & 1), HOST)


def _lowest(mask: int) -> int:
    return mask & -mask


def _path(state: _State) -> list[int]:
    found: list[int] = []
    while state.last is not None:
        index, state = state.last
        found.append(index)
    return found[::-1]
