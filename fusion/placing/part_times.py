"""What was measured of the parts of a model, from the records of a database: for whoever reports a placement."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping, Sequence

from backends.subgraphs import subgraph_key
from fusion.context import Context
from fusion.module.specialization import Specialization
from fusion.options import GENERATOR
from fusion.passes.regions import LibraryOffer, RegionGraph
from fusion.passes.regions.write import write_region
from fusion.placement_times import PartTimes
from fusion.placing.kernel_costs import calls_of
from fusion.placing.records import REGIONS
from fusion.placing.region_costs import kernels_task, parts_within, region_task, seconds_in_network
from fusion.placing.search import KernelCost
from placement.cover.problem import HOST
from placement.cover.regions import PlacedSubgraph
from tuning.known import Knowledge
from tuning.record import Record
from tuning.task import TuningTask


def kernel_records(
    found: RegionGraph, kernels: Iterable[KernelCost], ctx: Context, knowledge: Knowledge
) -> list[Record]:
    """Return what our `kernels` take in the network as records, one of all that compute the same."""
    took: dict[str, list[float]] = {}
    tasks: dict[str, TuningTask] = {}
    for kernel in kernels:
        if kernel.seconds and not any(map(found.why_not_any, kernel.operators)):
            task = kernels_task(write_region(found, kernel.operators).function, ctx, knowledge)
            tasks[task.key] = task
            took.setdefault(task.key, []).append(kernel.seconds)
    means = {key: statistics.mean(seconds) for key, seconds in took.items()}
    now = time.time()
    return [
        Record(
            task=tasks[key], point=REGIONS, seconds=seconds, spread=0.0, runs=len(took[key]), default_s=seconds,
            wins=False, measured_at=now,
        )
        for key, seconds in means.items()
    ]  # fmt: skip


def times_of_kernels(
    found: RegionGraph, form: Specialization, ctx: Context, knowledge: Knowledge
) -> dict[str, PartTimes]:
    """Return what each kernel of `form` takes in the network, by name, and the library that would be fastest of those
    that were asked for just its operators, with what the search takes it to need there."""
    calls = form.graph().calls
    asked: dict[str, tuple[TuningTask, dict[str, TuningTask]]] = {}
    for place, operators in calls_of(found, form).items():
        name = calls[place].op
        if calls[place].kind == "kernel" and name not in asked and not any(map(found.why_not_any, operators)):
            function = write_region(found, operators).function
            there = {each: region_task(function, each, ctx, knowledge) for each in ctx.graph_libraries}
            asked[name] = kernels_task(function, ctx, knowledge), there
    every = (task for ours, there in asked.values() for task in (ours, *there.values()))
    known = {record.task.key: record for record in knowledge.records(every) if record.runs}
    times: dict[str, PartTimes] = {}
    for name, (ours, there) in asked.items():
        if ours.key in known:
            took = known[ours.key].seconds
            records = {each: known[task.key] for each, task in there.items() if task.key in known}
            times[name] = _beside(took, {each: seconds_in_network(record, took) for each, record in records.items()})
    return times


def _beside(took: float, others: Mapping[str, float]) -> PartTimes:
    if not others:
        return PartTimes(took)
    best = min(others, key=others.__getitem__)
    return PartTimes(took, best, others[best])


def times_of_regions(
    groups: Sequence[PlacedSubgraph], offers: Mapping[int, LibraryOffer], ctx: Context, knowledge: Knowledge
) -> dict[str, PartTimes]:
    """Return what each region of a placement takes alone, by the key of its call, where that was measured, and what the
    fastest other backend does that was measured for it, our kernels among them."""
    found: dict[str, PartTimes] = {}
    for group in groups:
        if group.backend == HOST:
            continue
        name = [*ctx.graph_libraries][group.backend - 1]
        offer = offers[group.backend]
        function = offer.function(group.operators).function
        parts = parts_within([group.operators], group.operators) if offer.taken.parts is not None else None
        tasks = {
            each: region_task(function, each, ctx, knowledge, parts if each == name else None)
            for each in ctx.graph_libraries
        }
        known = {record.task.key: record for record in knowledge.records(tasks.values()) if record.runs}
        ratios = {each: known[task.key].ratio for each, task in tasks.items() if task.key in known}
        if name in ratios:
            record = known[tasks[name].key]
            others = {each: record.default_s * ratio for each, ratio in ratios.items() if each != name}
            key = subgraph_key(name, ctx.graph_libraries[name].export(function), ctx.threads)
            found[key] = _beside(record.seconds, {GENERATOR: record.default_s, **others})
    return found
