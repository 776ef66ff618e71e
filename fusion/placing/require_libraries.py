"""Refuses a model of which libraries leave something over, where a user names no kernels of ours for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import tvm
from tvm import relax

from backends.backend import GraphLibrary
from fusion import pipeline
from fusion.context import Context
from fusion.errors import UnsupportedOperatorError
from fusion.failures import tells_of_failure
from fusion.frontends.imported import ImportedModel
from fusion.frontends.origins import all_origins
from fusion.lowered import Lowered
from fusion.options import FALLBACK, GENERATOR
from fusion.placement_times import PlacementTimes
from fusion.report.placement import placement_in
from fusion.report.read_graph import operator_name

_NAMED = 4
"""Operators and reasons that are told."""
_OF_NO_BACKEND = ("zeros", "if")
"""What is left of operators whose results have no elements: constants with some are none of the model's operators. And
which of two branches runs the program decides, whoever computes them."""


def require_libraries(imported: ImportedModel, lowered: Lowered, ctx: Context) -> None:
    """Raise unless libraries run every operator of a model; kernels of ours may check what those read, and copy it.

    Raises:
        UnsupportedOperatorError: They do not.
    """
    parts = placement_in(lowered.graph, PlacementTimes()).parts
    ours = [zip(part.operators, part.names, strict=True) for part in parts if part.backend == GENERATOR]
    left = [(kind, name) for operators in ours for kind, name in operators if kind not in _OF_NO_BACKEND]
    if not left:
        return
    names = [*ctx.graph_libraries, *ctx.libraries]
    total = sum(len(part.operators) for part in parts)
    failures = [*ctx.skipped, *filter(tells_of_failure, lowered.notes)]
    modules = [mod for mod in (imported.mod, *imported.branches.values()) if mod is not None]
    refused = [each for mod in modules for each in _refused(mod, ctx)]
    # Of an operator that became others here, as a quantisation, these are refused, and have other names.
    kinds_left = {kind for kind, _ in left}
    told = [each for each in refused if each.kind in kinds_left] or refused
    if not failures:  # reports know of some only that they are near a call of ours
        kinds_told = {each.kind for each in told}
        left = [(kind, name) for kind, name in left if kind in kinds_told] or left
    reasons = dict.fromkeys([*failures, *_without_reasons(ctx), *(reason for each in told for reason in each.reasons)])
    origins = {name: where for mod in modules for name, where in all_origins(mod).items()}
    kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(kind for kind, _ in left).most_common(_NAMED))
    who = f"{' and '.join(names)} leave{'s' * (len(names) == 1)}" if names else "no library is there, which leaves"
    also = "" if FALLBACK in names else f", or {FALLBACK!r}, which runs what ONNX has"
    raise UnsupportedOperatorError(
        f"{who} {len(left)} of {total} operators over: {kinds}",
        where=", ".join([*dict.fromkeys(origins[name] for _, name in left if name in origins)][:_NAMED]),
        why="; ".join([*reasons][:_NAMED]),
        hint=f"name {GENERATOR!r} in backends= too, which runs what is left{also}",
    )


@dataclass(frozen=True)
class _Refused:
    """An operator that no library takes.

    Attributes:
        kind: Its name, or that of the function that it calls.
        reasons: Of each library.
    """

    kind: str
    reasons: tuple[str, ...]


def _refused(mod: tvm.IRModule, ctx: Context) -> Iterator[_Refused]:
    """Yield the operators of `main` that libraries were asked for, and none takes."""
    found = pipeline.regions_of(mod, ctx)
    libraries = ctx.graph_libraries.items()
    refused = {name: found.why_not(library) for name, library in libraries if isinstance(library, GraphLibrary)}
    for place, operator in enumerate(found.operators) if refused else ():
        call = operator[0].value
        if isinstance(call, relax.Call) and all(place in reasons for reasons in refused.values()):
            kind = operator_name(call)
            reasons = (f"{name} does not take {kind}: {reasons[place]}" for name, reasons in refused.items())
            yield _Refused(kind, tuple(reasons))


def _without_reasons(ctx: Context) -> Iterator[str]:
    """Yield what is known of libraries that give no reasons."""
    asked = {name for name, library in ctx.graph_libraries.items() if isinstance(library, GraphLibrary)}
    matching = [name for name in (*ctx.graph_libraries, *ctx.libraries) if name not in asked]
    yield from (f"{name} takes what its patterns match" for name in matching)
