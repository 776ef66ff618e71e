"""What a library takes of a graph that is to be covered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tvm import relax

from backends.backend import Library, RegionLibrary
from fusion.passes.rebuild import rebuild_main
from fusion.passes.regions.read import RegionGraph
from fusion.passes.regions.write import RegionFunction, write_region
from fusion.passes.take_subgraphs import COMPOSITE, name_calls
from fusion.passes.try_library import try_library
from placement.cover.places import TakenOperators
from placement.cover.quotient import ordered_groups


@dataclass(frozen=True, eq=False)
class LibraryOffer:
    """It; the library is asked once.

    Attributes:
        found: The graph.
        library: Who takes some of it.
    """

    found: RegionGraph
    library: RegionLibrary

    @cached_property
    def taken(self) -> TakenOperators:
        """The operators that it takes."""
        if isinstance(self.library, Library):
            return TakenOperators.in_parts(tuple(self.patterns))
        return TakenOperators(frozenset(self.found.graph.operators) - self.found.why_not(self.library).keys())

    @cached_property
    def patterns(self) -> Mapping[frozenset[int], str]:
        """Of a library with patterns, the name of that which matched each of the parts."""
        return dict(_matches(self.found, self.library)) if isinstance(self.library, Library) else {}

    def function(self, operators: frozenset[int]) -> RegionFunction:
        """Return some operators, which the library runs as one call, as the function that it exports."""
        region = write_region(self.found, operators)
        if operators not in self.patterns:
            return region
        named = region.function.with_attr(COMPOSITE, self.patterns[operators])
        return RegionFunction(region.inputs, region.outputs, named)


def try_offer(found: RegionGraph, name: str, library: RegionLibrary, threads: int) -> LibraryOffer:
    """Return what the library of a name may be asked to take of a graph, and to open for so many threads, which another
    process has tried.

    Raises:
        ExecutionError: It crashed or hung there.
    """
    try_library(found.mod, name, threads)
    return LibraryOffer(found, library)


def _matches(found: RegionGraph, library: Library) -> Iterator[tuple[frozenset[int], str]]:
    """Yield the operators of each match of a pattern, and the name of that; of two with the same operator the first,
    and none of those that wait for each other.

    They are what passes the checks of patterns: of functions that TVM makes of matches, equal ones are one.
    """
    matched: list[tuple[str, Sequence[str]]] = []
    patterns = [_telling(pattern, matched) for pattern in library.patterns]
    relax.transform.FuseOpsByPattern(patterns)(rebuild_main(found.mod, name_calls))
    counts = Counter(found.graph.names)
    places = {name: place for place, name in enumerate(found.graph.names) if counts[name] == 1}
    parts: dict[frozenset[int], str] = {}
    alone = set(found.graph.operators)
    for pattern, names in matched:
        operators = frozenset(places[name] for name in names if name in places)
        if len(operators) == len(names) and operators <= alone and not any(map(found.why_not_any, operators)):
            alone -= operators
            parts[operators] = pattern
    kept = set(ordered_groups(found.graph, [*parts, *(frozenset({operator}) for operator in sorted(alone))]))
    yield from ((operators, pattern) for operators, pattern in parts.items() if operators in kept)


def _telling(
    pattern: relax.transform.FusionPattern, matched: list[tuple[str, Sequence[str]]]
) -> relax.transform.FusionPattern:
    """Return a pattern that puts its name, and those of the calls that it is to match, into a list."""

    def check(context: relax.transform.PatternCheckContext) -> bool:
        if pattern.check is not None and not pattern.check(context):
            return False
        values = [context.matched_expr, *context.matched_bindings.values()]
        calls = (value for value in values if isinstance(value, relax.Call))
        matched.append((str(pattern.name), tuple(dict.fromkeys(str(call.span.source_name.name) for call in calls))))
        return True

    return relax.transform.FusionPattern(
        pattern.name, pattern.pattern, pattern.annotation_patterns, check, pattern.attrs_getter
    )
