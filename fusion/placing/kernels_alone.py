"""What each kernel of a model takes on libraries, all measured at once.

A search asks for the longest regions first, and of a large model the time is over before it comes to single kernels. So
these are known before: one module calls a kernel of each kind, none of which reads what another makes, and a library
opens nothing but the operators of one.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from tvm import relax

from fusion import pipeline
from fusion.context import Context
from fusion.declined import Declined
from fusion.errors import FusionError
from fusion.frontends.imported import ImportedModel
from fusion.module.specialization import Specialization
from fusion.options import FAST
from fusion.passes.regions import RegionGraph, failure_of
from fusion.passes.regions.write import RegionFunction, write_region
from fusion.placing.experiment import AloneKernel, KernelExperiment, LibraryPart
from fusion.placing.kernel_costs import calls_of, kernel_places, owners_of
from fusion.placing.records import REGIONS, placement_record
from fusion.placing.region_costs import MeasuredCosts, kernels_task, region_task, specs_of
from fusion.placing.search import KernelCost
from fusion.stages import stage
from partition.substitution import substitute
from placement.cover.places import PlacesByOrder
from tuning.record import Record
from tuning.task import TuningTask

_MOST_KINDS = 32
"""Of kernels, those which take the longest of a run; equal ones count once."""
_SECONDS = 10.0
"""For all of them, also where the time of the search is over: reports tell what kernels would take elsewhere."""
_REORDERED = ("transpose",)
"""The operators of a kernel that brings a tensor to another order."""


@dataclass(frozen=True, eq=False)
class _Kind:
    """Kernels that compute the same.

    Attributes:
        operators: Of one of them.
        region: What they compute.
        tasks: The question of each library that takes all of it, by its position.
    """

    operators: frozenset[int]
    region: RegionFunction
    tasks: Mapping[int, TuningTask]

    def without(self, known: Collection[str]) -> _Kind:
        """Return this without the questions of some keys."""
        return replace(self, tasks={place: task for place, task in self.tasks.items() if task.key not in known})


@stage("kernels on libraries")
def measure_alone(costs: MeasuredCosts, kernels: Sequence[KernelCost]) -> None:
    """Keep what each of `kernels` takes on libraries that run all of its operators, where that is not known; `costs`
    know then which questions are answered so, and which libraries are broken. Nothing is kept of kernels that the time
    does not reach, or where what calls them does not compile."""
    kinds = _kinds(costs, kernels)
    every = (task for kind in kinds for task in kind.tasks.values())
    known = {record.task.key for record in costs.knowledge.records(every)}
    costs.alone |= known
    asked = [kind for each in kinds if (kind := each.without(known)).tasks]
    if asked:
        with suppress(Declined, FusionError):
            found = _measure(costs, asked)
            costs.knowledge.keep(found)
            costs.alone |= {record.task.key for record in found}


def _kinds(costs: MeasuredCosts, kernels: Sequence[KernelCost]) -> list[_Kind]:
    """Return the kinds of kernels, those first that take the longest of a run."""
    found, names = costs.found, [*costs.ctx.graph_libraries]
    kinds: dict[str, _Kind] = {}
    took: dict[str, float] = {}
    for kernel in kernels:
        if not kernel.seconds or any(map(found.why_not_any, kernel.operators)):
            continue
        region = write_region(found, kernel.operators)
        key = kernels_task(region.function, costs.ctx, costs.knowledge).key
        took[key] = took.get(key, 0.0) + kernel.seconds
        if key not in kinds:
            tasks = {
                place: region_task(region.function, names[place - 1], costs.ctx, costs.knowledge)
                for place, offer in costs.offers.items()
                if place not in costs.broken and kernel.operators <= offer.taken.operators and offer.taken.parts is None
            }
            kinds[key] = _Kind(kernel.operators, region, tasks)
    return [kinds[key] for key in sorted(kinds, key=took.__getitem__, reverse=True)][:_MOST_KINDS]


def _measure(costs: MeasuredCosts, kinds: Sequence[_Kind]) -> list[Record]:
    """Return what libraries take in place of kernels.

    Raises:
        Declined, FusionError: What calls them does not compile.
    """
    model, homes = _model_of(costs.found, kinds)
    ctx = replace(costs.ctx, places=PlacesByOrder(), effort=FAST)
    form = costs.make(model, ctx)
    calls = _calls_of(model, homes, form, ctx)
    path = costs.bench.save(form, ctx)
    failed, kernels = list[TuningTask](), list[AloneKernel]()
    first_input = first_output = 0
    measured = list[_Kind]()
    for place, kind in enumerate(kinds):
        inputs, outputs = (first_input, len(kind.region.inputs)), (first_output, len(kind.region.outputs))
        first_input, first_output = sum(inputs), sum(outputs)
        parts = list[LibraryPart]()
        for library, task in kind.tasks.items() if calls[place] else ():
            name = [*ctx.graph_libraries][library - 1]
            file = costs.bench.folder / f"kernel{place}on{library}"
            try:
                file.write_bytes(ctx.graph_libraries[name].export(kind.region.function))
            except (MemoryError, OSError):
                raise
            except Exception as error:  # whatever the code of another package raises
                failure_of(name, "does not run a kernel", error)
                failed.append(task)
                continue
            parts.append(LibraryPart(library, name, str(file)))
        if parts:
            kernels.append(AloneKernel(inputs, outputs, calls[place], tuple(parts)))
            measured.append(kind)
    now = time.time()
    found = [placement_record(task, REGIONS, None, now) for task in failed]
    if not kernels:  # each shares its call, or runs on no library
        return found
    experiment = KernelExperiment(path, tuple(kernels), ctx.threads, _SECONDS, costs.bench.tolerance)
    results = costs.bench.session.run(experiment)
    costs.broken.update((trial.candidate, reason) for trial, reason in results.reasons.items())
    for trial, reason in results.notes.items():
        costs.failed.setdefault(trial.candidate, reason)
    for kind, decision in zip(measured, results.decisions, strict=False):  # those behind had no time
        times = {each.candidate: each for each in decision.times}
        found += [
            placement_record(task, REGIONS, times.get(library), now)
            for library, task in kind.tasks.items()
            if library not in costs.broken
        ]
    return found


def _model_of(found: RegionGraph, kinds: Sequence[_Kind]) -> tuple[ImportedModel, Mapping[str, int]]:
    """Return a model of some kinds, in order, each with inputs and results of its own, and whose its operators are, by
    their names."""
    read = [var for kind in kinds for var in kind.region.inputs]
    params = [relax.Var(f"p{place}", var.ty) for place, var in enumerate(read)]
    left, results, homes = iter(params), list[relax.Expr](), dict[str, int]()
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            for place, kind in enumerate(kinds):
                env: dict[relax.Var, relax.Expr] = dict(zip(kind.region.inputs, left, strict=False))
                for binding in found.bindings(kind.operators):
                    env[binding.var] = builder.emit(substitute(binding.value, env))
                    homes[env[binding.var].name] = place
                results += [env[var] for var in kind.region.outputs]
            result = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(result)
    specs = specs_of("p", [var.ty for var in read]), specs_of("y", [each.ty for each in results])
    return ImportedModel(builder.finalize(), *specs), homes


def _calls_of(
    model: ImportedModel, homes: Mapping[str, int], form: Specialization, ctx: Context
) -> list[tuple[int, ...]]:
    """Return the calls of each kind, by their positions among those of kernels; none of one that shares a call.

    Raises:
        Declined: Which call is which is not known.
    """
    assert model.mod is not None
    again, graph = pipeline.regions_of(model.mod, ctx), form.graph()
    groups = calls_of(again, form)
    whose = {
        call: {homes[name] for name in map(again.graph.names.__getitem__, operators) if name in homes}
        for call, operators in groups.items()
    }
    found: list[list[int]] = [[] for _ in range(1 + max(homes.values()))]
    owners, shared = owners_of(form, groups), set[int]()
    for position, call in enumerate(kernel_places(form)):
        kinds = whose.get(owners.get(call, call), set())
        if call not in groups and _operators_in(form, graph.calls[call].op) == _REORDERED:
            continue  # in the network tensors come in that order
        shared.update(kinds if len(kinds) > 1 else ())
        for kind in kinds:
            found[kind].append(position)
    return [() if kind in shared else tuple(calls) for kind, calls in enumerate(found)]


def _operators_in(form: Specialization, kernel: str) -> tuple[str, ...]:
    return form.kernels[kernel].ops if kernel in form.kernels else ()
