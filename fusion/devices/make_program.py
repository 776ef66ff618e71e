"""From a lowered model to a program on several devices: costs, plans, and the machine code of each stage."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np

from fusion import pool
from fusion.context import Context, resolve
from fusion.declined import Declined
from fusion.devices.choose_stages import (
    StagePlan,
    latency_alone,
    one_after_the_other,
    plan_latency,
    plan_throughput,
)
from fusion.devices.confirm_latency import confirm_latency
from fusion.devices.costs import PCI_EXPRESS, Links, Seconds, placement_problem, without_cost
from fusion.devices.cut_graph import CutGraph
from fusion.devices.deal_requests import UNDER_WAY
from fusion.devices.device_memory import why_too_small
from fusion.devices.device_plans import DevicePlans
from fusion.devices.device_program import DeviceProgram
from fusion.devices.device_thread import DeviceThread
from fusion.devices.host_kernels import host_kernels
from fusion.devices.measured_costs import measure_run, measure_shares
from fusion.devices.parts import Parts
from fusion.devices.rpc_session import RpcSession, closed_on_error, open_sessions
from fusion.devices.targets import DeviceTarget, OffloadDevice
from fusion.errors import ExecutionError, ShapeError, TargetError
from fusion.frontends.imported import ImportedModel
from fusion.lowered import Lowered
from fusion.module.random_inputs import random_inputs
from fusion.module.share_weights import share_weights
from fusion.options import FAST
from placement.devices import Link
from placement.problem import LATENCY

_LEAST_SHARE = 0.05
"""Of a run on a server that kernels are taken to have, whatever its copies were measured to take."""
_BOUTS = 4
"""Of whole runs on each device alone, and on all at a time."""
T = TypeVar("T")


def make_program(
    imported: ImportedModel, lowered: Lowered, devices: tuple[DeviceTarget, ...], ctx: Context
) -> DeviceProgram:
    """Return what runs `lowered`, the kernels of `imported`, on `devices`.

    Raises:
        TargetError: There is nothing to run, or a device does not take it.
        DeviceLostError: A server ended meanwhile.
    """
    lowered = replace(lowered, weights=share_weights(lowered.weights))
    graph = CutGraph(lowered, len(imported.inputs))
    if not graph.tasks:
        raise TargetError(
            "the model has nothing to divide among devices",
            why="its results are inputs, or were computed when it was compiled",
            hint='use target="llvm"',
        )
    host = replace(resolve(threads=ctx.threads), database=ctx.database) if ctx.compiler.device else ctx
    kernels = host_kernels(lowered, host.compiler) if ctx.compiler.device else {}
    if ctx.threads > 1:
        pool.start(sum(device.threads for device in devices))  # here, as this thread is bound to none of them
    sessions = open_sessions(devices)
    with closed_on_error(sessions):
        parts = Parts(
            graph=graph, imported=imported, ctx=ctx, devices=devices, sessions=sessions, host=host, kernels=kernels
        )
        return _planned(parts, imported, ctx)


def _planned(parts: Parts, imported: ImportedModel, ctx: Context) -> DeviceProgram:
    graph, devices = parts.graph, parts.devices
    threads = [DeviceThread(device) for device in devices]
    links = {k: session.link for k, session in parts.sessions.items()}
    links |= {k: PCI_EXPRESS for k, device in enumerate(devices) if isinstance(device, OffloadDevice)}
    times = _times(parts, threads, imported, links, ctx)
    alone = placement_problem(graph, devices, times.alone, links, requests=1)
    once = plan_latency(alone)
    together = placement_problem(graph, devices, times.together, links, requests=UNDER_WAY)
    flow = parts.flow(once.pipelines[0], threads)
    by_one = latency_alone(alone)
    if times.arrays and len(once.stages) > 1 and by_one is not None:
        once, flow = confirm_latency(once, flow, by_one, parts.flow(by_one.pipelines[0], threads), times.arrays)
    try:
        many = plan_throughput(together, servers=set(links))
        streams = tuple(parts.flow(pipeline, threads) for pipeline in many.pipelines)
    except Declined as reason:
        many, streams = one_after_the_other(together, once, str(reason)), (flow,)
    if why_too_small((flow, *streams)):
        once, flow = _as_a_stream(once, many), streams[0]
    plans = DevicePlans(
        devices,
        alone,
        together,
        once,
        many,
        kernels=tuple(sum(len(step.kernels) for step in task) for task in graph.tasks),
        names=tuple(tuple(str(var.name) for step in task for var in step.writes) for task in graph.tasks),
        costs=_about(times.source, graph),
    )
    return DeviceProgram(imported.inputs, flow, streams, plans, _in_use(parts, plans))


def _in_use(parts: Parts, plans: DevicePlans) -> list[RpcSession]:
    """Return the sessions that the plans use, and end the others."""
    used = {stage.device for stage in (*plans.once.stages, *plans.many.stages)}
    for k, session in parts.sessions.items():
        if k not in used:
            session.close("the model uses it for nothing")
    return [session for k, session in parts.sessions.items() if k in used]


def _as_a_stream(once: StagePlan, many: StagePlan) -> StagePlan:
    """Return the plan of calls that keeps nothing on the devices but what streams have there."""
    first = many.pipelines[0]
    return StagePlan(
        LATENCY,
        (first,),
        seconds=sum(stage.seconds for stage in first.stages),
        bound=once.bound,
        alone=once.alone,
        why="the stages of streams, as those of the best plan for calls do not fit the memories beside them",
    )


@dataclass(frozen=True)
class _Times:
    """What kernels take on each device.

    Attributes:
        alone: While the others are idle, as in a call.
        together: While all compute, as in a stream: they share caches and memory.
        source: Where the times are from.
        arrays: Inputs that the model was measured on; none of estimates.
    """

    alone: Sequence[Seconds]
    together: Sequence[Seconds]
    source: str
    arrays: Sequence[np.ndarray] = ()


def _times(
    parts: Parts, threads: Sequence[DeviceThread], imported: ImportedModel, links: Links, ctx: Context
) -> _Times:
    """Return what was measured, or the estimates: at the least effort, and where the inputs are no numbers."""
    estimates, sessions = parts.estimates, parts.sessions
    if ctx.effort == FAST:
        return _Times(estimates, estimates, parts.host_times.source)
    tasks = tuple(range(len(parts.graph.tasks)))
    try:
        arrays = list(random_inputs(imported.inputs).values())
        program = parts.local(tasks).kernels
        runs = [
            partial(_whole_run, parts, k, tasks, arrays, links[k])
            if k in sessions
            else partial(measure_run, program, arrays, thread.device.threads)
            for k, thread in enumerate(threads)
        ]
        alone, together = _runs(threads, runs)
        here = [thread for k, thread in enumerate(threads) if k not in sessions]
        kernels = [partial(measure_shares, program, arrays, thread.device.threads) for thread in here]
        shares_alone = list(map(DeviceThread.run, here, kernels))
        shares_together = _together(here, kernels)
    except (ShapeError, ExecutionError) as error:
        return _Times(estimates, estimates, f"{parts.host_times.source}, as measuring failed: {error.what}")
    return _Times(
        _of_kernels(alone, shares_alone, estimates, parts),
        _of_kernels(together, shares_together, estimates, parts),
        "times were measured on each device, of streams while all were busy",
        arrays,
    )


def _whole_run(
    parts: Parts, server: int, tasks: tuple[int, ...], arrays: Sequence[np.ndarray], link: Link
) -> float:
    """Return what all kernels take on a server: what a run takes, less the copies that plans count for it besides."""
    taken = parts.remote(server, tasks).seconds(arrays)
    copies = sum(link.seconds(size) for task in tasks for size in parts.graph.copies(task))
    return max(taken - copies, _LEAST_SHARE * taken)


def _runs(threads: Sequence[DeviceThread], runs: Sequence[Callable[[], float]]) -> tuple[list[float], list[float]]:
    """Return what a run takes on each device while the others are idle, and while all compute: means over bouts of
    both by turns, as the clock of a machine may change every few seconds (by 24% where that was measured)."""
    alone, together = list[list[float]](), list[list[float]]()
    for _ in range(_BOUTS):
        alone.append(list(map(DeviceThread.run, threads, runs)))
        together.append(_together(threads, runs))
    return [statistics.mean(each) for each in zip(*alone, strict=True)], [
        statistics.mean(each) for each in zip(*together, strict=True)
    ]


def _together(threads: Sequence[DeviceThread], calls: Sequence[Callable[[], T]]) -> list[T]:
    """Return what the devices make of their calls, all at a time."""
    if not calls:
        return []
    with ThreadPoolExecutor(len(threads)) as callers:
        return list(callers.map(DeviceThread.run, threads, calls))


def _of_kernels(
    runs: Sequence[float], shares: Sequence[Seconds], estimates: Sequence[Seconds], parts: Parts
) -> list[Seconds]:
    """Return the times of kernels on all devices, from those of `runs` and the shares of a run on the devices here:
    those of a server have the shares that they have on the first device here, or of the estimates where there is
    none."""
    of_first = shares[0] if shares else estimates[0]
    whole = sum(of_first.get(name, 0.0) for task in parts.graph.tasks for step in task for name in step.kernels)
    of_server = {name: share / whole if whole else share for name, share in of_first.items()}
    of_here = iter(shares)
    return [
        {name: run * share for name, share in (of_server if k in parts.sessions else next(of_here)).items()}
        for k, run in enumerate(runs)
    ]


def _about(source: str, graph: CutGraph) -> tuple[str, ...]:
    unknown = without_cost(graph)
    return (source, f"{unknown} steps that are no kernels count as if they took no time") if unknown else (source,)
