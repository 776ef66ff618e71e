"""A problem as sets of bits, which the search reads in each of its steps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from placement.cover.problem import HOST, CoverProblem, SubgraphCandidate


def mask_of(positions: Iterator[int] | frozenset[int]) -> int:
    """Return the set of `positions` as bits."""
    mask = 0
    for position in positions:
        mask |= 1 << position
    return mask


def bits_of(mask: int) -> Iterator[int]:
    """Yield the positions of the bits of `mask`, the lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


@dataclass(frozen=True)
class CandidateBits:
    """A candidate.

    Attributes:
        index: Its position.
        operators: Those in it.
        needs: Operators outside whose results it reads.
        reads: Values that it reads from outside.
        makes: Values of it that operators outside read.
        backend: Who runs it.
        seconds: What it takes if all that it reads is on the host, with the call, and with its part of the model's
            results handed over.
    """

    index: int
    operators: int
    needs: int
    reads: int
    makes: int
    backend: int
    seconds: float


class CoverTables:
    """What the search asks of a problem."""

    def __init__(self, problem: CoverProblem) -> None:
        self.problem = problem
        self.all = (1 << len(problem.graph.reads)) - 1
        self._more: dict[tuple[int, int, int], float] = {}
        self.readers = tuple(mask_of(readers) for readers in problem.graph.readers)

    @cached_property
    def candidates(self) -> tuple[CandidateBits, ...]:
        """Those that do not fail."""
        found = enumerate(self.problem.candidates)
        return tuple(self._bits(index, each) for index, each in found if each.operators and math.isfinite(each.seconds))

    @cached_property
    def by_operator(self) -> tuple[tuple[CandidateBits, ...], ...]:
        """The candidates that have each operator."""
        found: list[list[CandidateBits]] = [[] for _ in self.problem.graph.reads]
        for each in self.candidates:
            for operator in bits_of(each.operators):
                found[operator].append(each)
        return tuple(map(tuple, found))

    @cached_property
    def shares(self) -> tuple[float, ...]:
        """Seconds that each operator takes at least: its even part of the candidate where that is least."""
        calls, given = self.problem.calls, self.problem.candidates
        return tuple(
            min(
                (
                    (given[each.index].seconds + calls[each.backend]) / len(given[each.index].operators)
                    for each in candidates
                ),
                default=math.inf,
            )
            for candidates in self.by_operator
        )

    @cached_property
    def share_of(self) -> dict[int, float]:
        """The sum of the shares of each candidate's operators, by its position."""
        return {each.index: sum(self.shares[at] for at in bits_of(each.operators)) for each in self.candidates}

    def move(self, value: int, source: int, target: int) -> float:
        """Return the seconds in which a value gets from backend `source` to `target`."""
        return self.problem.moves[source][target].seconds(self.problem.graph.values[value].bytes)

    def most_more(self, value: int, source: int, other: int) -> float:
        """Return how many seconds more a value takes at most to get anywhere from `source` than from `other`."""
        key = (value, source, other)
        if key not in self._more:
            targets = range(len(self.problem.calls))
            self._more[key] = max(self.move(value, source, to) - self.move(value, other, to) for to in targets)
        return max(self._more[key], 0.0)

    def _bits(self, index: int, each: SubgraphCandidate) -> CandidateBits:
        graph = self.problem.graph
        operators = mask_of(each.operators)
        producers = [value.producer for value in graph.values]
        reads = {value for at in each.operators for value in graph.reads[at] if producers[value] not in each.operators}
        made = [value for value, producer in enumerate(producers) if producer in each.operators]
        seconds = each.seconds + self.problem.calls[each.backend]
        seconds += sum(self.move(value, HOST, each.backend) for value in reads)
        seconds += sum(self.move(value, each.backend, HOST) for value in made if graph.values[value].is_result)
        return CandidateBits(
            index=index,
            operators=operators,
            needs=mask_of(frozenset(producer for value in reads if (producer := producers[value]) is not None)),
            reads=mask_of(frozenset(reads)),
            makes=mask_of(frozenset(value for value in made if self.readers[value] & ~operators)),
            backend=each.backend,
            seconds=seconds,
        )
