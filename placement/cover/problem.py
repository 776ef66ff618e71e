"""The graph that is covered: operators, values between them, candidates of all backends, and what passing a value on
costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

HOST = 0
"""The backend that a model's inputs come from, and that its results go to."""


@dataclass(frozen=True)
class CoverValue:
    """A tensor.

    Attributes:
        bytes: Its size.
        producer: Position of the operator that makes it; None for an input of the model.
        is_result: Whether the model returns it.
    """

    bytes: float
    producer: int | None = None
    is_result: bool = False


@dataclass(frozen=True)
class CoverGraph:
    """A model.

    Attributes:
        reads: Of each operator the positions of the values that it takes; operators come after the producers of those.
        values: All tensors but constants.
        names: Of the operators, for reports; may be left out.
    """

    reads: tuple[tuple[int, ...], ...]
    values: tuple[CoverValue, ...]
    names: tuple[str, ...] = ()

    @property
    def operators(self) -> range:
        return range(len(self.reads))

    @cached_property
    def readers(self) -> tuple[frozenset[int], ...]:
        """The operators that take each value."""
        found: list[set[int]] = [set() for _ in self.values]
        for operator, reads in enumerate(self.reads):
            for value in reads:
                found[value].add(operator)
        return tuple(map(frozenset, found))

    @cached_property
    def sources(self) -> tuple[frozenset[int], ...]:
        """The operators that each operator takes results of."""
        made_by = ((self.values[value].producer for value in reads) for reads in self.reads)
        return tuple(frozenset(producer for producer in producers if producer is not None) for producers in made_by)


@dataclass(frozen=True)
class SubgraphCandidate:
    """A subgraph that a backend can run as one call.

    Attributes:
        operators: Positions. No path between two of them may leave the set: what is not convex is never chosen.
        backend: Position of the backend.
        seconds: What it takes there, infinite where it fails.
    """

    operators: frozenset[int]
    backend: int
    seconds: float


@dataclass(frozen=True)
class MoveCost:
    """What it takes to hand a value from one backend to another: its layout, a copy.

    Attributes:
        fixed: Seconds a value.
        per_byte: Seconds a byte.
    """

    fixed: float = 0.0
    per_byte: float = 0.0

    def seconds(self, size: float) -> float:
        """Return what a value of `size` bytes takes."""
        return self.fixed + self.per_byte * size


@dataclass(frozen=True)
class CoverProblem:
    """What is searched.

    Attributes:
        graph: The model.
        candidates: Of all backends. A cover is certain to be found where each operator alone is among them.
        moves: `moves[a][b]` is what a value made by backend `a` and read by a subgraph of `b` takes, for each subgraph
            that reads it; 0 on the diagonal.
        calls: Seconds that calling a subgraph takes, by backend.
    """

    graph: CoverGraph
    candidates: tuple[SubgraphCandidate, ...]
    moves: tuple[tuple[MoveCost, ...], ...]
    calls: tuple[float, ...]


@dataclass(frozen=True)
class Cover:
    """Subgraphs that together are the model.

    Attributes:
        chosen: Positions of candidates, in an order in which they can run.
        seconds: What they take, with calls and moves.
        bound: Seconds that no cover is below.
    """

    chosen: tuple[int, ...]
    seconds: float
    bound: float

    @property
    def is_exact(self) -> bool:
        """Whether no cover is better, but for rounding."""
        return self.seconds <= self.bound * (1 + 1e-9)


def subgraphs_of(problem: CoverProblem, cover: Cover) -> Sequence[SubgraphCandidate]:
    """Return the candidates of a cover, in the order they run."""
    return [problem.candidates[index] for index in cover.chosen]
