"""Give libraries the regions of the graph that a placement says."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import tvm

from backends.backend import RegionLibrary
from backends.subgraphs import subgraph_key
from fusion.apart import asking_apart, open_apart
from fusion.bindings import call_name
from fusion.counted import counted
from fusion.facts import PassResult, TellingPass
from fusion.failures import passing
from fusion.passes.regions.offer import LibraryOffer, try_offer
from fusion.passes.regions.read import RegionGraph, read_regions
from fusion.passes.regions.write import RegionFunction, write_main
from placement.cover.places import Places, TakenOperators
from placement.cover.problem import HOST
from placement.cover.regions import PlacedSubgraph

_log = logging.getLogger("fusion.backends")


@dataclass(frozen=True)
class PlacedRegion:
    """A region that a library runs.

    Attributes:
        backend: Its name.
        key: By which `main` calls it.
        operators: What it computes, by Relax's names: "nn.conv2d".
        names: Of the variables that their results are bound to, in the same order.
    """

    backend: str
    key: str
    operators: tuple[str, ...]
    names: tuple[str, ...]


@dataclass(frozen=True)
class PlacedRegions:
    """What libraries run.

    Attributes:
        regions: In the order they run.
        subgraphs: What each is made from, by its key.
        notes: Who failed, one sentence each.
    """

    regions: tuple[PlacedRegion, ...] = ()
    subgraphs: Mapping[str, bytes] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class TakeRegions(TellingPass[PlacedRegions]):
    """`b = matmul(x, w); y = relu(b)`  ->  `y = call_pure_packed("fusion.fallback", key, x)`, where the placement says
    that a library runs both.

    Attributes:
        libraries: Who may run regions, by name; their positions count from 1 in that order.
        places: The placement.
        threads: Of each.
    """

    libraries: Mapping[str, RegionLibrary]
    places: Places
    threads: int
    name: str = "take_regions"

    def run(self, mod: tvm.IRModule) -> PassResult[PlacedRegions]:
        """Return the module with calls of regions, and what those are; what fails to be opened stays where it was."""
        with asking_apart():
            return self._run(mod)

    def _run(self, mod: tvm.IRModule) -> PassResult[PlacedRegions]:
        found = read_regions(mod)
        names = ("", *self.libraries)
        regions: dict[frozenset[int], tuple[str, RegionFunction]] = {}
        placed, subgraphs, notes = list[PlacedRegion](), dict[str, bytes](), dict[str, None]()
        offer = cache(lambda name: try_offer(found, name, self.libraries[name], self.threads))
        groups = self.places(found.graph, lambda place: self._taken(names[place], offer, notes))
        for group in groups:
            if group.backend == HOST:
                continue
            name = names[group.backend]
            try:
                region = offer(name).function(group.operators)
                data = self._opened(name, region)
            except MemoryError:
                raise
            except Exception as error:  # whatever the code of another package raises
                notes[failure_of(name, "does not run a region", error)] = None
                continue
            key = subgraph_key(name, data, self.threads)
            regions[group.operators] = (key, region)
            subgraphs[key] = data
            placed.append(PlacedRegion(name, key, *_operators(found, group)))
        written = write_main(mod, found, groups, regions) if regions else mod
        return PassResult(written, PlacedRegions(tuple(placed), subgraphs, (*notes, *_lines(placed, found))))

    def _taken(self, name: str, offer: Callable[[str], LibraryOffer], notes: dict[str, None]) -> TakenOperators:
        """Return what a library takes; where asking fails, nothing, with a note."""
        try:
            return offer(name).taken
        except MemoryError:
            raise
        except Exception as error:  # whatever the code of another package raises
            notes[failure_of(name, "takes nothing", error)] = None
            return TakenOperators(frozenset())

    def _opened(self, name: str, region: RegionFunction) -> bytes:
        """Return what a library exports of a region, after it has opened that, in another process first."""
        library = self.libraries[name]
        data = library.export(region.function)
        open_apart(name, data, self.threads)
        library.open(data, self.threads)
        return data


def failure_of(name: str, what: str, error: Exception) -> str:
    """Return the sentence about a library that failed, and what it does not do therefore; the log has the traceback."""
    _log.info("the backend %r %s", name, what, exc_info=error)
    return passing(f"the backend {name!r} failed and {what}: {type(error).__name__}: {error}")


def _operators(found: RegionGraph, group: PlacedSubgraph) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the operators of a group, and the names of their results."""
    calls = [each for each in found.bindings(group.operators) if call_name(each.value)]
    return tuple(call_name(each.value) for each in calls), tuple(str(each.var.name) for each in calls)


def _lines(placed: Sequence[PlacedRegion], found: RegionGraph) -> list[str]:
    """Return how many operators each library runs."""
    lines = []
    for name in dict.fromkeys(region.backend for region in placed):
        mine = [region for region in placed if region.backend == name]
        counts = Counter(operator for region in mine for operator in region.operators)
        kinds = ", ".join(f"{count} {operator}" for operator, count in counts.most_common(4))
        total, of = sum(counts.values()), len(found.graph.operators)
        lines.append(f"{name} runs {total} of {counted(of, 'operator')} in {counted(len(mine), 'region')}: {kinds}")
    return lines
