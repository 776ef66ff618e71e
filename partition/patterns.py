"""Partitions a contested region as FusionStitching does (arXiv 2009.10924, section 5): PatternReduction finds sets of
parts that are worth a kernel of their own, and a beam search composes them into a plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from partition.access import MappingKind
from partition.dataflow import DataflowNode, anchors_of
from partition.emit_groups import outputs_of
from partition.formed import saved_bytes
from partition.joins import join_parts
from partition.profitability import ProfitabilityCache
from partition.regions import parts_of

_PATTERNS = 2
"""How many patterns are kept for each first part: so many with an anchor, and so many without."""

_UNIONS = 16
"""How many unions of the patterns of several consumers are kept in `_behind`."""

_PLANS = 3
"""Width of the beam, as in FusionStitching."""

Pattern = int
"""A set of parts of a region, as a bit mask: bit `i` stands for part `i`."""

Plan = tuple[Pattern, ...]
"""Disjoint patterns."""


@dataclass
class ContestedRegion:
    """A few groups, taken apart to be partitioned anew.

    Attributes:
        parts: Nodes that stay together, in the order of execution.
        readers: For each part the indices of the parts that read it.
        groups: The partition that there is.
        complex: The set of the parts with anchors.
        start_bytes: The cost of starting a kernel, in bytes of memory traffic.
        kernels: A cache: whether a pattern may be one kernel.
        savings: A cache: the bytes that a pattern saves as one kernel.
    """

    parts: list[list[DataflowNode]]
    readers: list[list[int]]
    groups: Plan
    complex: Pattern
    profitability: ProfitabilityCache
    start_bytes: int
    kernels: dict[Pattern, bool] = field(default_factory=dict)
    savings: dict[Pattern, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, groups: Sequence[Sequence[DataflowNode]], profitability: ProfitabilityCache, start_bytes: int
    ) -> ContestedRegion:
        """Return the region of `groups`."""
        parts = sorted((part for group in groups for part in parts_of(group)), key=lambda part: part[0].index)
        place = {node: index for index, part in enumerate(parts) for node in part}
        readers = [
            sorted({place[reader] for node in part for reader in node.consumers if reader in place} - {index})
            for index, part in enumerate(parts)
        ]
        plan = tuple(sum(1 << index for index in {place[node] for node in group}) for group in groups)
        with_anchors = sum(1 << index for index, part in enumerate(parts) if anchors_of(part))
        return cls(
            parts=parts,
            readers=readers,
            groups=plan,
            complex=with_anchors,
            profitability=profitability,
            start_bytes=start_bytes,
            kernels=dict.fromkeys(plan, True),
        )

    def best_kernels(self) -> list[list[DataflowNode]]:
        """Return the partition that saves most, which may be the one that there is."""
        now = [self.nodes(pattern) for pattern in self.groups]
        found = [join_parts([self.nodes(pattern) for pattern in plan], self.profitability) for plan in self._search()]
        return max([now, *found], key=lambda kernels: sum(map(self._saved, kernels)))

    def nodes(self, pattern: Pattern) -> list[DataflowNode]:
        """Return the nodes of the parts in `pattern`, in the order of execution."""
        members = (node for index, part in enumerate(self.parts) if pattern >> index & 1 for node in part)
        return sorted(members, key=lambda node: node.index)

    def saved(self, pattern: Pattern) -> int:
        """Return the bytes that `pattern` saves as one kernel."""
        if pattern not in self.savings:
            self.savings[pattern] = self._saved(self.nodes(pattern))
        return self.savings[pattern]

    def is_kernel(self, pattern: Pattern) -> bool:
        """Return whether `pattern` may be one kernel."""
        if pattern not in self.kernels:
            parts = [part for index, part in enumerate(self.parts) if pattern >> index & 1]
            self.kernels[pattern] = len(join_parts(parts, self.profitability, self.nodes(pattern))) == 1
        return self.kernels[pattern]

    def _search(self) -> list[Plan]:
        """Return the best complete plans that a beam search finds.

        Partial plans cover different parts. To compare them, each is completed greedily: every further part takes the
        best pattern that fits.
        """
        best = self._reduce()
        plans: list[Plan] = [()]
        for index in range(len(best)):
            longer = dict.fromkeys(more for plan in plans for more in _continued(plan, index, best[index]))
            ends = {plan: sum(map(self.saved, _completed(plan, index, best))) for plan in longer}
            ranked = sorted(longer, key=lambda plan: ends[plan], reverse=True)
            plans = list(islice((plan for plan in ranked if all(map(self.is_kernel, plan))), _PLANS))
        return plans

    def _reduce(self) -> list[list[Pattern]]:
        """Return for each part the patterns whose first part it is, composed from the patterns of its consumers, best
        first; the last is the part alone."""
        best: list[list[Pattern]] = [[] for _ in self.parts]
        for index in reversed(range(len(best))):
            own = 1 << index
            found = {own | behind for behind in self._behind(own, self.readers[index], best)}
            found |= {group for group in self.groups if group & -group == own}
            ranked = sorted(found - {own}, key=lambda pattern: (self.saved(pattern), pattern), reverse=True)
            # Patterns with a complex operator join no other one: alone, they would hide those that can.
            kinds = ([pattern for pattern in ranked if bool(pattern & self.complex) is kind] for kind in (True, False))
            kept = {pattern for kind in kinds for pattern in islice(filter(self.is_kernel, kind), _PATTERNS)}
            best[index] = [*(pattern for pattern in ranked if pattern in kept), own]
        return best

    def _behind(self, own: Pattern, readers: Sequence[int], best: Sequence[list[Pattern]]) -> list[Pattern]:
        """Return unions of patterns of `readers`. They are composed from two halves of the readers, recursively, so
        that their number stays small."""
        if len(readers) < 2:
            return [0, *(pattern for reader in readers for pattern in best[reader])]
        half = len(readers) // 2
        left, right = (self._behind(own, some, best) for some in (readers[:half], readers[half:]))
        unions = {one | other for one in left for other in right} - {0}
        return [0, *sorted(unions, key=lambda union: (self.saved(own | union), union), reverse=True)[:_UNIONS]]

    def _saved(self, kernel: Sequence[DataflowNode]) -> int:
        """Return the bytes that one kernel saves compared with a kernel for each node, starts of kernels included.

        Recomputation is not counted, as the rules allow it for small values only.
        """
        starts = sum(not (node.access.kind is MappingKind.REORDER and not node.access.moves) for node in kernel)
        return saved_bytes(kernel, outputs_of(kernel)) + self.start_bytes * max(0, starts - 1)


def _continued(plan: Plan, index: int, patterns: Iterable[Pattern]) -> Iterator[Plan]:
    """Yield `plan` extended by each of `patterns`, whose first part is `index`, with their parts removed from the other
    patterns of the plan; and `plan` as it is if it covers that part."""
    if sum(plan) >> index & 1:
        yield plan
    for taken in patterns:
        yield (*(left for pattern in plan if (left := pattern & ~taken)), taken)


def _completed(plan: Plan, index: int, best: Sequence[list[Pattern]]) -> Plan:
    """Return `plan`, completed by the best pattern that fits for each part after `index`."""
    covered = sum(plan)
    for later in range(index + 1, len(best)):
        if not covered >> later & 1:
            plan = (*plan, next(pattern for pattern in best[later] if not pattern & covered))
            covered |= plan[-1]
    return plan
