"""Which device runs which tasks in which stages: for one request, and for a stream of them."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

from fusion.declined import Declined
from placement.bounds import area_bound, lower_bound
from placement.choose import choose_plan, memory_sizes
from placement.cuts import seconds_with
from placement.methods.contiguous import ContiguousStages
from placement.methods.fastest import FastestDevice
from placement.plan import DevicePlan
from placement.problem import LATENCY, THROUGHPUT, PlacementProblem
from placement.replicas import Replicas, find_replicas
from placement.simulate import loads

_LEAST_GAIN = 0.05
"""Part of its time by which the fastest device alone must be beaten, and replicas by a pipeline: times are not better
known than that, to use one device costs nobody anything, and replicas wait for nobody."""


@dataclass(frozen=True)
class PlannedStage:
    """Tasks that one device runs one after the other, for one request.

    Attributes:
        device: Position of the device.
        tasks: In the order in which they run.
        seconds: What they take.
        cut: Why the stage begins where it does.
    """

    device: int
    tasks: tuple[int, ...]
    seconds: float
    cut: str


@dataclass(frozen=True)
class Pipeline:
    """Stages that make up the whole model.

    Attributes:
        stages: Each behind all that it reads.
        seconds: Between two requests that it takes.
    """

    stages: tuple[PlannedStage, ...]
    seconds: float


@dataclass(frozen=True)
class StagePlan:
    """How a model runs on several devices.

    Attributes:
        objective: What it is for.
        pipelines: To which the requests of a stream are dealt; one for single requests.
        seconds: The latency of a request, or the time between two of a stream, that is expected.
        bound: Seconds that no plan is below; 0 where none was found.
        alone: Seconds of the fastest device alone; infinite where none can hold the model.
        why: What was chosen, and over what.
    """

    objective: str
    pipelines: tuple[Pipeline, ...]
    seconds: float
    bound: float
    alone: float
    why: str

    @property
    def stages(self) -> tuple[PlannedStage, ...]:
        """The stages of all pipelines."""
        return tuple(stage for pipeline in self.pipelines for stage in pipeline.stages)

    @property
    def gap(self) -> float | None:
        """Part by which the plan is above the bound; None where none was found."""
        return max(self.seconds / self.bound - 1.0, 0.0) if self.bound else None


def plan_latency(problem: PlacementProblem) -> StagePlan:
    """Return the stages of one request: tasks that wait for another device, or that another waits for, end them.

    Raises:
        LimitError: No plan was found that fits the memories.
    """
    alone, bound = _fastest(problem, LATENCY), lower_bound(problem, LATENCY)
    if alone is not None and bound >= alone.seconds * (1 - _LEAST_GAIN):
        return _alone(problem, alone, bound, "no plan can be faster by 5%: see the bound")
    choice = choose_plan(problem, LATENCY)
    if alone is not None and choice.plan.seconds >= alone.seconds * (1 - _LEAST_GAIN):
        return _alone(problem, alone, choice.bound, f"the best plan found takes {choice.plan.seconds * 1e3:.3f} ms")
    return StagePlan(
        LATENCY,
        (Pipeline(_latency_stages(problem, choice.plan), choice.plan.seconds),),
        seconds=choice.plan.seconds,
        bound=choice.bound,
        alone=_seconds(alone),
        why=f"found by {choice.method}",
    )


def latency_alone(problem: PlacementProblem) -> StagePlan | None:
    """Return the plan of one request that uses the fastest device only; None where no device can hold the model."""
    alone = _fastest(problem, LATENCY)
    return None if alone is None else _alone(problem, alone, lower_bound(problem, LATENCY), "as planned")


def plan_throughput(problem: PlacementProblem, servers: Collection[int] = ()) -> StagePlan:
    """Return what is the fastest for a stream: one device alone, a pipeline of at most one stage a device, or the whole
    model on several devices, unless a pipeline is clearly faster. The bound is that of all of these: of replicas each
    task may be on several devices. `servers` do not compute while something is copied to or from them.

    Raises:
        Declined: None of these fits the memories.
    """
    alone, bound = _fastest(problem, THROUGHPUT), area_bound(problem)
    candidates, declined = list[StagePlan](), list[str]()
    for find in (_replicated, partial(_pipelined, servers=servers)):
        try:
            candidates.append(find(problem, alone, bound))
        except Declined as reason:
            declined.append(str(reason))
    best = candidates[0] if candidates else None
    if best is not None and candidates[-1].seconds < best.seconds * (1 - _LEAST_GAIN):
        best = candidates[-1]
    if alone is None and best is None:
        raise Declined("; ".join([memory_sizes(problem), *declined]))
    if alone is not None and (best is None or best.seconds >= alone.seconds * (1 - _LEAST_GAIN)):
        told = "; ".join(declined) if best is None else f"the best plan found takes {best.seconds * 1e3:.3f} ms"
        return _alone(problem, alone, bound, told)
    assert best is not None
    return best


def one_after_the_other(problem: PlacementProblem, once: StagePlan, why: str) -> StagePlan:
    """Return the plan of a stream that runs as single requests do, where none is made for streams."""
    return replace(
        once,
        objective=THROUGHPUT,
        bound=area_bound(problem),
        why=f"the stages of a call, for one request after the other: no plan for streams fits the memories: {why}",
    )


def _pipelined(
    problem: PlacementProblem, alone: DevicePlan | None, bound: float, servers: Collection[int]
) -> StagePlan:
    plan = ContiguousStages().find(problem, THROUGHPUT).plan
    busy = loads(problem, plan.placement)
    seconds = max(
        plan.seconds, *(sum(load for ends, load in busy.items() if k in ends) for k in servers), 0.0
    )  # fmt: skip
    return StagePlan(
        THROUGHPUT,
        (Pipeline(_runs(problem, plan), seconds),),
        seconds=seconds,
        bound=bound,
        alone=_seconds(alone),
        why="the best of all cuts of the graph's order",
    )


def _replicated(problem: PlacementProblem, alone: DevicePlan | None, bound: float) -> StagePlan:
    replicas = find_replicas(problem)
    return StagePlan(
        THROUGHPUT,
        tuple(_replica(problem, replicas, at) for at in range(len(replicas.devices))),
        seconds=replicas.period,
        bound=bound,
        alone=_seconds(alone),
        why="the whole model on each device, requests dealt among them",
    )


def _replica(problem: PlacementProblem, replicas: Replicas, at: int) -> Pipeline:
    seconds = replicas.seconds[at]
    # Nothing is known of what libraries run.
    share = replicas.period / seconds if seconds else 1 / len(replicas.devices)
    why = f"the model begins here, for {share:.0%} of the requests"
    return Pipeline((PlannedStage(replicas.devices[at], tuple(problem.tasks), seconds, why),), seconds)


def _fastest(problem: PlacementProblem, objective: str) -> DevicePlan | None:
    """Return the plan of the fastest device alone; None where none can hold the model."""
    try:
        return FastestDevice().find(problem, objective).plan
    except Declined:
        return None


def _seconds(alone: DevicePlan | None) -> float:
    return math.inf if alone is None else alone.seconds


def _alone(problem: PlacementProblem, plan: DevicePlan, bound: float, why: str) -> StagePlan:
    return StagePlan(
        plan.objective,
        (Pipeline(_runs(problem, plan), plan.seconds),),
        seconds=plan.seconds,
        bound=bound,
        alone=plan.seconds,
        why=f"the fastest device alone: {why}",
    )


def _runs(problem: PlacementProblem, plan: DevicePlan) -> tuple[PlannedStage, ...]:
    """Return the stages of a plan in which each device runs what follows each other in the graph."""
    cuts = [task for task in problem.tasks if not task or plan.placement[task] != plan.placement[task - 1]]
    ends = [*cuts[1:], len(problem.tasks)][: len(cuts)]
    return tuple(_run(problem, plan, start, end) for start, end in zip(cuts, ends, strict=True))


def _run(problem: PlacementProblem, plan: DevicePlan, start: int, end: int) -> PlannedStage:
    device = plan.placement[start]
    seconds = sum(problem.seconds[task][device] for task in range(start, end))
    sent = sum(
        problem.sent[task] for task in range(start)
        if any(consumer >= start for consumer, _ in problem.consumers[task])
    )  # fmt: skip
    why = (
        f"the load is even within 1% of the best, and of such cuts the fewest bytes go over this: {sent / 1e6:.3f} MB"
        if start
        else "the model begins here"
    )
    return PlannedStage(device, tuple(range(start, end)), seconds, why)


def _latency_stages(problem: PlacementProblem, plan: DevicePlan) -> tuple[PlannedStage, ...]:
    """Return the tasks of each device in the plan's order, in a new stage where one reads of another device or behind
    one of which another device reads: a stage waits before its first task only, and others only for its end."""
    open_stages, stages = dict[int, list[int]](), list[tuple[int, list[int], str]]()
    for task in plan.order:
        device, name = plan.placement[task], problem.graph.tasks[task].name
        others = [producer for producer, _ in problem.producers[task] if plan.placement[producer] != device]
        if others or device not in open_stages:
            waits = _why_waits(problem, plan, task, others[-1]) if others else ""
            why = waits or f"{name} is the first that may run beside others"
            open_stages[device] = []
            stages.append((device, open_stages[device], why))
        open_stages[device].append(task)
        if any(plan.placement[consumer] != device for consumer, _ in problem.consumers[task]):
            del open_stages[device]
    return tuple(
        PlannedStage(device, tuple(tasks), _sum(problem, tasks, device), why) for device, tasks, why in stages
    )


def _why_waits(problem: PlacementProblem, plan: DevicePlan, task: int, producer: int) -> str:
    """Return why a task reads of another device: what a call would take with both here, and with both there."""
    here, there = plan.placement[task], plan.placement[producer]
    names = [device.name for device in problem.topology.devices]
    both = (
        f"{_ms(seconds_with(problem, plan, [moved], device, len(problem.tasks)))} with both on {names[device]}"
        for moved, device in ((producer, here), (task, there))
    )
    tasks = problem.graph.tasks
    return f"{tasks[task].name} waits for {tasks[producer].name}: a call would take {', '.join(both)}"


def _ms(seconds: float) -> str:
    return "more memory than there is" if math.isinf(seconds) else f"{seconds * 1e3:.3f} ms"


def _sum(problem: PlacementProblem, tasks: Sequence[int], device: int) -> float:
    return sum(problem.seconds[task][device] for task in tasks)
