"""What a library takes of a graph that is to be covered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from backends.backend import Library, RegionLibrary
from fusion.passes.regions.matches import all_matches
from fusion.passes.regions.read import RegionGraph
from fusion.passes.regions.write import RegionFunction, write_region
from fusion.passes.take_subgraphs import COMPOSITE
from fusion.passes.try_library import try_library
from placement.cover.places import TakenOperators


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
        """Of a library with patterns, the name of the first that matched each of the parts, which may have operators in
        common."""
        return all_matches(self.found, self.library) if isinstance(self.library, Library) else {}

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

