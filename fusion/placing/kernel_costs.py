"""What our kernels take of a model, operator by operator of the graph that is to be covered."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from fusion.declined import Declined
from fusion.model_graph import INFERRED, MAPPED
from fusion.module.program import KernelProgram
from fusion.module.random_inputs import random_inputs
from fusion.module.specialization import Specialization
from fusion.passes.regions import RegionGraph
from fusion.placing.search import KernelCost
from fusion.report.profile import time_calls

_SECONDS = 1.0


def kernel_costs(found: RegionGraph, form: Specialization) -> list[KernelCost]:
    """Return what each kernel of `form`, which runs on our kernels alone, takes in the network, with the operators of
    a graph that it computes, and with the kernels before it of which no operator is known: those that bring tensors to
    another order, and the first ones of an operator that several compute. Operators of which no kernel is known take
    nothing, each alone: mostly they only rename memory.

    Raises:
        Declined: Which call is which is not known.
    """
    times, calls = _times_of(form), calls_of(found, form)
    seconds: dict[int, float] = {}
    for call, owner in owners_of(form, calls).items():
        seconds[owner] = seconds.get(owner, 0.0) + times.get(call, 0.0)
    groups = [KernelCost(operators, seconds[call]) for call, operators in calls.items() if call in times]
    rest = set(found.graph.operators).difference(*(group.operators for group in groups))
    return [*groups, *(KernelCost(frozenset({operator}), 0.0) for operator in sorted(rest))]


def calls_of(found: RegionGraph, form: Specialization) -> dict[int, frozenset[int]]:
    """Return the operators of a graph that each call of `form` computes, by the position of the call, as far as they
    are known; one that several calls compute a part of is in the last. What rewrites made is among them: mostly that is
    a product or a convolution whose weights took in a factor."""
    graph = form.graph()
    operators = graph.operators
    calls = {each.name: max(each.calls) for each in operators if each.how in (MAPPED, INFERRED) and each.calls}
    calls |= {name: max(each) for name, each in graph.rewritten.items()}
    groups: dict[int, set[int]] = {}
    for operator, name in enumerate(found.graph.names):
        call = calls.get(found.origins.get(name, name))
        if call is not None:
            groups.setdefault(call, set()).add(operator)
    return {call: frozenset(group) for call, group in groups.items()}


def owners_of(form: Specialization, known: Collection[int]) -> dict[int, int]:
    """Return of which of the `known` calls of `form` each call is a part: of itself, or else of the first of those for
    which it makes something."""
    calls = form.graph().calls
    readers: dict[int, list[int]] = {}
    for place, call in enumerate(calls):
        for read in call.reads:
            readers.setdefault(read.source, []).append(place)
    owners: dict[int, int] = {}
    for place in reversed(range(len(calls))):
        behind = [owners[reader] for reader in readers.get(place, ()) if reader in owners]
        if place in known or behind:
            owners[place] = place if place in known else min(behind)
    return owners


def kernel_places(form: Specialization) -> list[int]:
    """Return the positions in the graph of `form` of its calls of kernels, in the order in which a run makes them."""
    return [place for place, call in enumerate(form.graph().calls) if call.kind == "kernel"]


def _times_of(form: Specialization) -> Mapping[int, float]:
    """Return the seconds of each call, by its position in the graph of `form`."""
    if not isinstance(form.program, KernelProgram):
        raise Declined("the model is no program of kernels")
    arrays = list(random_inputs(form.inputs).values())
    form.program.library.use_threads(form.program.threads)
    calls, seconds = time_calls(form.program, arrays, _SECONDS)
    places = kernel_places(form)
    if [form.graph().calls[place].op for place in places] != [call.kernel for call in calls]:
        raise Declined("the graph has other calls of kernels than the program")
    return dict(zip(places, seconds, strict=True))
