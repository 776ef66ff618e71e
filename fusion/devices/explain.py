"""What runs on which device, and why, as text and as plain data."""

from __future__ import annotations

import math
from typing import Any

from fusion.devices.choose_stages import PlannedStage, StagePlan
from fusion.devices.device_plans import DevicePlans
from fusion.devices.targets import DeviceTarget
from fusion.report.device_plan import NO_BOUND
from fusion.report.table import format_table, shorten
from fusion.system.cpus import cpu_quota
from placement.problem import LATENCY, THROUGHPUT

HEADER = ("stage", "device", "kernels", "ms", "from", "to", "begins here because")
"""Columns of what stages are."""
TITLES = {LATENCY: "one request", THROUGHPUT: "a stream of requests"}


def explain_devices(plans: DevicePlans, objective: str | None = None) -> str:
    """Return both plans, or that for `objective`: what each stage runs, why it begins where it does, and how far the
    plan is from the bound."""
    lines = about_devices(plans)
    for plan in (plans.once, plans.many):
        if objective in (None, plan.objective):
            busy = ", ".join(f"{name} {share:.0%}" for name, share in _busy(plan, plans).items())
            title = TITLES[plan.objective]
            lines += ["", f"{title}: {summary(plan)}", f"busy: {busy}", format_table(HEADER, stage_rows(plan, plans))]
    return "\n".join(lines)


def about_devices(plans: DevicePlans) -> list[str]:
    """Return which devices there are, and where times are from."""
    lines = [f"devices: {', '.join(map(_device, plans.devices))}; {'; '.join(plans.costs)}"]
    threads, quota = sum(device.threads for device in plans.devices), cpu_quota()
    if quota < threads:
        lines.append(f"the devices have {threads} CPUs, and this process the time of {quota:g}: expect less")
    return lines


def _device(device: DeviceTarget) -> str:
    told = [f"{device.threads} CPU{'s' * (device.threads > 1)}"] if device.cpus else []
    told += [] if math.isinf(device.memory) else [f"{device.memory / 1e6:.3g} MB"]
    return f"{device.name} ({', '.join(told)})" if told else device.name


def summary(plan: StagePlan) -> str:
    """Return what a plan takes, why it was chosen, and how far from the bound it is."""
    by_one = f"the fastest device alone {plan.alone * 1e3:.3f}"
    alone = "no device can hold the model" if math.isinf(plan.alone) else by_one
    bound = f"no plan is below {plan.bound * 1e3:.3f} (gap {plan.gap:.1%})" if plan.gap is not None else NO_BOUND
    return f"{plan.seconds * 1e3:.3f} ms expected ({plan.why}); {alone}, {bound}"


def stage_rows(plan: StagePlan, plans: DevicePlans) -> list[tuple[str, ...]]:
    """Return the stages of a plan for the columns of `HEADER`."""
    return [_row(index, stage, plans) for index, stage in enumerate(plan.stages)]


def _busy(plan: StagePlan, plans: DevicePlans) -> dict[str, float]:
    """Return which share of the time each device computes."""
    found = dict.fromkeys((device.name for device in plans.devices), 0.0)
    for pipeline in plan.pipelines:
        for stage in pipeline.stages:
            found[plans.devices[stage.device].name] += stage.seconds / pipeline.seconds if pipeline.seconds else 0.0
    return found


def _row(index: int, stage: PlannedStage, plans: DevicePlans) -> tuple[str, ...]:
    first, last = (shorten(plans.problem.graph.tasks[task].name, 32) for task in (stage.tasks[0], stage.tasks[-1]))
    device, kernels = plans.devices[stage.device].name, sum(plans.kernels[task] for task in stage.tasks)
    return str(index + 1), device, str(kernels), f"{stage.seconds * 1e3:.3f}", first, last, stage.cut


def plans_dict(plans: DevicePlans) -> dict[str, Any]:
    """Return both plans as plain data."""
    return {
        plan.objective: {
            "ms": plan.seconds * 1e3,
            "alone_ms": None if math.isinf(plan.alone) else plan.alone * 1e3,
            "bound_ms": None if plan.gap is None else plan.bound * 1e3,
            "gap": plan.gap,
            "busy": _busy(plan, plans),
            "why": plan.why,
            "stages": [
                {
                    "pipeline": index,
                    "device": plans.devices[stage.device].name,
                    "ms": stage.seconds * 1e3,
                    "tasks": [plans.problem.graph.tasks[task].name for task in stage.tasks],
                    "cut": stage.cut,
                }
                for index, pipeline in enumerate(plan.pipelines)
                for stage in pipeline.stages
            ],
        }
        for plan in (plans.once, plans.many)
    }
