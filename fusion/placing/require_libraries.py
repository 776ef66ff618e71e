"""Refuses a model of which libraries leave something over, where a user names no kernels of ours for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set

from backends.backend import GraphLibrary
from fusion import pipeline
from fusion.bindings import call_name
from fusion.context import Context
from fusion.errors import UnsupportedOperatorError
from fusion.failures import tells_of_failure
from fusion.frontends.imported import ImportedModel
from fusion.lowered import Lowered
from fusion.options import GENERATOR
from fusion.placement_times import PlacementTimes
from fusion.report.placement import placement_in

_NAMED = 4
"""Operators and reasons that are told."""
_OF_NOTHING = "zeros"
"""What is left of operators whose results have no elements: constants with some are none of the model's operators."""


def require_libraries(imported: ImportedModel, lowered: Lowered, ctx: Context) -> None:
    """Raise unless libraries run every operator of a model; kernels of ours may check what those read, and copy it.

    Raises:
        UnsupportedOperatorError: They do not.
    """
    parts = placement_in(lowered.graph, PlacementTimes()).parts
    left = [name for part in parts if part.backend == GENERATOR for name in part.operators if name != _OF_NOTHING]
    if not left:
        return
    names = [*ctx.graph_libraries, *ctx.libraries]
    total = sum(len(part.operators) for part in parts)
    kinds = ", ".join(f"{count} {name}" for name, count in Counter(left).most_common(_NAMED))
    failures = [*ctx.skipped, *filter(tells_of_failure, lowered.notes)]
    reasons = dict.fromkeys([*failures, *_reasons(imported, ctx, set(left))])
    who = f"{' and '.join(names)} leave{'s' * (len(names) == 1)}" if names else "no library is there, which leaves"
    raise UnsupportedOperatorError(
        f"{who} {len(left)} of {total} operators over: {kinds}",
        why="; ".join([*reasons][:_NAMED]),
        hint=f"name {GENERATOR!r} in backends= too, which runs what is left",
    )


def _reasons(imported: ImportedModel, ctx: Context, left: Set[str]) -> Iterator[str]:
    """Yield why libraries do not take operators of the kinds that are `left`, where none takes them."""
    assert imported.mod is not None
    found = pipeline.regions_of(imported.mod, ctx)
    libraries = ctx.graph_libraries.items()
    refused = {name: found.why_not(library) for name, library in libraries if isinstance(library, GraphLibrary)}
    matching = [name for name in (*ctx.graph_libraries, *ctx.libraries) if name not in refused]
    yield from (f"{name} takes what its patterns match" for name in matching)
    for place, operator in enumerate(found.operators):
        kind = call_name(operator[0].value)
        if kind in left and all(place in reasons for reasons in refused.values()):
            yield from (f"{name} does not take {kind}: {reasons[place]}" for name, reasons in refused.items())
