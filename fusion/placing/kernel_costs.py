"""What our kernels take of a model, operator by operator of the graph that is to be covered."""

from __future__ import annotations

from collections.abc import Mapping

from fusion.declined import Declined
from fusion.model_graph import MAPPED
from fusion.module.program import KernelProgram
from fusion.module.random_inputs import random_inputs
from fusion.module.specialization import Specialization
from fusion.passes.regions import RegionGraph
from fusion.placing.search import KernelCost
from fusion.report.profile import time_calls

_SECONDS = 1.0


def kernel_costs(found: RegionGraph, form: Specialization) -> list[KernelCost]:
    """Return what each kernel of `form`, which runs on our kernels alone, takes in the network, with the operators of
    a graph that it computes. Operators of which no kernel is known take nothing, each alone: mostly they only rename
    memory.

    Raises:
        Declined: Which call is which is not known.
    """
    times, calls = _times_of(form), calls_of(found, form)
    groups = [KernelCost(operators, times[call]) for call, operators in calls.items() if call in times]
    rest = set(found.graph.operators).difference(*(group.operators for group in groups))
    return [*groups, *(KernelCost(frozenset({operator}), 0.0) for operator in sorted(rest))]


def calls_of(found: RegionGraph, form: Specialization) -> dict[int, frozenset[int]]:
    """Return the operators of a graph that each call of `form` computes, by the position of the call, as far as they
    are known; one that several calls compute a part of is in the last."""
    operators = form.graph().operators
    calls = {each.name: max(each.calls) for each in operators if each.how == MAPPED and each.calls}
    groups: dict[int, set[int]] = {}
    for operator, name in enumerate(found.graph.names):
        call = calls.get(found.origins.get(name, name))
        if call is not None:
            groups.setdefault(call, set()).add(operator)
    return {call: frozenset(group) for call, group in groups.items()}


def _times_of(form: Specialization) -> Mapping[int, float]:
    """Return the seconds of each call, by its position in the graph of `form`."""
    if not isinstance(form.program, KernelProgram):
        raise Declined("the model is no program of kernels")
    arrays = list(random_inputs(form.inputs).values())
    form.program.library.use_threads(form.program.threads)
    calls, seconds = time_calls(form.program, arrays, _SECONDS)
    places = [place for place, call in enumerate(form.graph().calls) if call.kind == "kernel"]
    if [form.graph().calls[place].op for place in places] != [call.kernel for call in calls]:
        raise Declined("the graph has other calls of kernels than the program")
    return dict(zip(places, seconds, strict=True))
