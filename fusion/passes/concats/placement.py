"""What placing concatenations changes in what is known of kernels and of the edges between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tvm import relax

from fusion.passes.concats.plan import ConcatPlan
from fusion.passes.concats.read import ConcatGraph
from partition.formed import Formed, Grouping, Kept


@dataclass(frozen=True)
class JoinedOperand:
    """An operand of a concatenation.

    Attributes:
        names: Those of its variable, and of the call that makes it.
        reason: Why it is still read or copied; "" where its kernel writes it in place.
    """

    names: frozenset[str]
    reason: str


@dataclass(frozen=True)
class Placement:
    """What became of concatenations and of the kernels around them, by the names of variables before.

    Attributes:
        operands: Those of each concatenation.
        writers: The calls that write each one without a kernel of its own.
        renamed: What calls are bound to now.
        saved: Bytes that a call saves by writing in place.
    """

    operands: Mapping[str, tuple[JoinedOperand, ...]] = field(default_factory=dict)
    writers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    saved: Mapping[str, int] = field(default_factory=dict)

    def update(self, groups: Grouping) -> Grouping:
        """Return `groups` as they are after concatenations were placed: with the calls that took the place of others,
        without the edges that are no memory accesses any more."""
        producers = {name: formed.variable for formed in groups.formed for name in formed.members}
        now = ((kept, self._reason(kept, producers.get(kept.source, kept.source))) for kept in groups.kept)
        kept = tuple(replace(each, reason=reason) for each, reason in now if reason)
        return Grouping(tuple(self._formed(formed) for formed in groups.formed), kept)

    def _formed(self, formed: Formed) -> Formed:
        name = formed.variable
        if name not in self.renamed:
            return formed
        return replace(formed, variable=self.renamed[name], saved=formed.saved + self.saved.get(name, 0))

    def _reason(self, kept: Kept, producer: str) -> str:
        """Return why the edge from the result of `producer` is a memory access; "" where it is none any more."""
        operands = self.operands.get(kept.target, ())
        return next((operand.reason for operand in operands if producer in operand.names), kept.reason)


def placement_of(
    graph: ConcatGraph, plan: ConcatPlan, calls: Mapping[relax.Var, str], copies: Mapping[relax.Var, Sequence[str]]
) -> Placement:
    """Return what became of the concatenations of `graph` by `plan`.

    Args:
        calls: Names of what its calls are bound to now, of those that changed.
        copies: Names of the calls that copy parts of each concatenation.
    """
    operands: dict[str, tuple[JoinedOperand, ...]] = {}
    for concat in graph.operands:
        operands.setdefault(concat.name, tuple(_operands(graph, plan, concat)))
    changed = {name: var for name, var in {var.name: var for var in graph.values}.items() if var in calls}
    return Placement(
        operands,
        writers={var.name: tuple(dict.fromkeys(names)) for var, names in _writers(graph, plan, calls, copies).items()},
        renamed={name: calls[var] for name, var in changed.items()},
        saved={name: plan.saved.get(var, 0) for name, var in changed.items()},
    )


def _operands(graph: ConcatGraph, plan: ConcatPlan, concat: relax.Var) -> Iterator[JoinedOperand]:
    for operand in graph.operands[concat]:
        result = graph.part(operand).result
        names = {getattr(operand, "name", ""), "" if result is None else result.call.name}
        yield JoinedOperand(frozenset(names), plan.reasons.get((concat, operand), ""))


def _writers(
    graph: ConcatGraph, plan: ConcatPlan, calls: Mapping[relax.Var, str], copies: Mapping[relax.Var, Sequence[str]]
) -> dict[relax.Var, list[str]]:
    """Return the names of the calls that write each concatenation; those of the parts come before those of what is
    joined of them."""
    writers: dict[relax.Var, list[str]] = {concat: [] for concat in graph.operands if concat in plan.joined}
    written: dict[relax.Var, list[relax.Var]] = {}
    for result, places in plan.writes.items():
        written.setdefault(result.call, []).extend(place.concat for place in places)
    for var in graph.values:
        if var in calls:
            for concat in written.get(var, ()):
                writers[concat].append(calls[var])
        if var in plan.joined:
            parts = (writers.get(operand, []) for operand in graph.operands[var])
            writers[var] += [name for names in parts for name in names]
            writers[var] += copies[var]
    return writers
