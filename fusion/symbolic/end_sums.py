"""Bounds of sizes that are added to others, where a table ends at the sum: a cache and the words behind it have 1024
positions together, and either takes nearly all where the other is small."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fusion.extents import Sizes
from fusion.symbolic.found_model import FoundModel
from fusion.symbolic.open_weights import OpenWeight
from fusion.symbolic.sized_imports import SizedImports


def end_sums(importer: SizedImports, found: FoundModel) -> FoundModel:
    """Return the model with all that each size takes which is added to others when these are as small as can be, and,
    where it is another model if all are as large, with the sizes that they may have `together`."""
    dims, taken = found.dims, found.bounds
    added = {symbol: _added_to(symbol, found) for symbol in taken}
    ended = {
        symbol: others
        for symbol, others in added.items()
        if others and not _is_same(importer, found, {symbol: dims.taken(symbol)[-1]})
    }
    if not ended or importer.limits:
        return found
    largest, halves = dict[str, int](), dict[str, int]()
    for symbol, others in ended.items():
        smallest = {other: taken[other][0] for other in others}
        total = taken[symbol][-1] + sum(found.near[0][other] for other in others)
        size = dims.at_most(symbol, total - sum(smallest.values()))
        goes_on = _goes_on(importer, found, {**smallest, symbol: size})
        largest[symbol] = size if goes_on else taken[symbol][-1]
        halves[symbol] = max(taken[symbol][0], dims.at_most(symbol, total // (len(others) + 1)))
    if _is_same(importer, found, largest):
        return replace(found, bounds=_with_ends(taken, largest))
    seen = {symbol: found.near[1][symbol] for symbol in ended}
    together = halves if _is_same(importer, found, halves) else seen
    return replace(found, bounds=_with_ends(taken, largest), together=_with_ends(taken, together))


def within_tables(found: FoundModel, weights: Sequence[OpenWeight]) -> FoundModel:
    """Return the model with bounds for which it is right: all, if calls for which it is another one lie beyond those
    tables of `weights` that depend on what is added up, as these are asked of each call."""
    corner = found.dims.all_sizes({symbol: taken[-1] for symbol, taken in found.bounds.items()})
    ending = [found.dims.sources(weight.symbols) for weight in weights if not weight.covers(corner)]
    ended = [symbol for symbol, taken in found.together.items() if taken != found.bounds[symbol]]
    is_asked = all(
        any(symbol in names and not names.isdisjoint(_added_to(symbol, found)) for names in ending) for symbol in ended
    )
    return found if is_asked else replace(found, bounds=found.together)


def _added_to(symbol: str, found: FoundModel) -> list[str]:
    """Return the symbols of the inputs that `symbol` is added to."""
    sums = [{name for part in size.parts for name in part.symbols} for size in found.dims.derived]
    names = set[str]().union(*(names for names in sums if symbol in names))
    return [name for name in found.dims.symbols if name in names and name != symbol]


def _is_same(importer: SizedImports, found: FoundModel, sizes: Sizes) -> bool:
    """Return whether the operators are the same at `sizes`, and those near by of other symbols."""
    return importer.is_same(found.dims.all_sizes({**found.near[0], **sizes}), found.graph)


def _goes_on(importer: SizedImports, found: FoundModel, sizes: Sizes) -> bool:
    """Return whether the operators are the same there, and constants go on as they begin."""
    known = found.dims.all_sizes({**found.near[0], **sizes})
    return _is_same(importer, found, sizes) and found.constants.can_be(importer.read(known), known)


def _with_ends(bounds: Mapping[str, range], largest: Sizes) -> dict[str, range]:
    return {name: range(taken.start, largest.get(name, taken[-1]) + 1, taken.step) for name, taken in bounds.items()}
