"""Looks for the best string of bits by evolution, where each costs a measurement.

The second level of Collage (arXiv 2111.00655): a bit says whether a group moves to a backend that takes whole
subgraphs. Sums of what subgraphs take alone miss what they do to each other's caches and threads; this asks the whole.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Bits = tuple[bool, ...]


@dataclass(frozen=True)
class Evolution:
    """How it is looked for; numbers not explained are Collage's.

    Attributes:
        evaluations: Measurements at most.
        seed: Of the draws.
        population: Strings of a generation.
        tournament: Strings of which the best becomes a parent.
        crossing, mutating: Share of children that are mixed of two, and that are changed.
        flips: Share of the bits of these that are.
    """

    evaluations: int
    seed: int = 0
    population: int = 50
    tournament: int = 5
    crossing: float = 0.5
    mutating: float = 0.2
    flips: float = 0.05


@dataclass(frozen=True)
class Evolved:
    """What was found.

    Attributes:
        bits: The best string.
        seconds: What it takes.
        evaluations: Measurements that it took.
    """

    bits: Bits
    seconds: float
    evaluations: int


def evolve(
    starts: Sequence[Bits],
    evaluate: Callable[[Bits], float],
    how: Evolution,
    goes_on: Callable[[], bool] = lambda: True,
) -> Evolved:
    """Return the best string found, never one that is slower than any of `starts`.

    Args:
        starts: Of the first generation, of one length, in the order they are measured: first that which is taken where
            nothing is better.
        evaluate: Returns seconds, infinite where it fails. Asked once for a string.
        how: The numbers of the search.
        goes_on: Asked before each measurement but the first; nothing more is measured once it says no.
    """
    search = _Generations(how, evaluate, goes_on)
    if not starts[0]:
        return Evolved((), evaluate(()), 1)
    search.run(starts)
    best = min(search.known, key=search.known.__getitem__)
    return Evolved(best, search.known[best], len(search.known))


@dataclass
class _Generations:
    how: Evolution
    evaluate: Callable[[Bits], float]
    goes_on: Callable[[], bool]
    known: dict[Bits, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._draw = random.Random(self.how.seed)

    def run(self, starts: Sequence[Bits]) -> None:
        """Measure generation after generation, until there is nothing left to measure with or to be measured."""
        length = len(starts[0])
        drawn = (self._random(length) for _ in range(self.how.population - len(starts)))
        population = self._measured([*starts, *drawn])
        stale = 0
        while self._may_measure() and len(self.known) < 2**length and stale < self.how.population:
            before = len(self.known)
            population = self._measured([self._child(population) for _ in population])
            stale = stale + 1 if len(self.known) == before else 0

    def _measured(self, strings: Sequence[Bits]) -> list[Bits]:
        """Measure what is new of `strings`; return those of which it is known then."""
        for bits in strings:
            if bits not in self.known and self._may_measure():
                self.known[bits] = self.evaluate(bits)
        return [bits for bits in strings if bits in self.known]

    def _may_measure(self) -> bool:
        return not self.known or (len(self.known) < self.how.evaluations and self.goes_on())

    def _random(self, length: int) -> Bits:
        return tuple(self._draw.random() < 0.5 for _ in range(length))

    def _child(self, population: Sequence[Bits]) -> Bits:
        child = self._parent(population)
        if self._draw.random() < self.how.crossing:
            other = self._parent(population)
            start, end = sorted((self._draw.randint(0, len(child)), self._draw.randint(0, len(child))))
            child = (*child[:start], *other[start:end], *child[end:])
        if self._draw.random() < self.how.mutating:
            child = tuple(bit ^ (self._draw.random() < self.how.flips) for bit in child)
        return child

    def _parent(self, population: Sequence[Bits]) -> Bits:
        picked = [self._draw.choice(population) for _ in range(self.how.tournament)]
        return min(picked, key=self.known.__getitem__)
