"""What runs on which device, and why, as text and as plain data."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from fusion.cpus import cpu_quota
from fusion.devices.choose_stages import PlannedStage, StagePlan
from fusion.devices.device_plans import DevicePlans
from fusion.report.table import format_table, shorten


def explain_devices(plans: DevicePlans, objective: str | None = None) -> str:
    """Return both plans, or that for `objective`: what each stage runs, why it begins where it does, and how far the
    plan is from the bound."""
    lines = [f"devices: {', '.join(device.name for device in plans.devices)}; {'; '.join(plans.costs)}"]
    threads, quota = sum(device.threads for device in plans.devices), cpu_quota()
    if quota < threads:
        lines.append(f"the devices have {threads} CPUs, and this process the time of {quota:g}: expect less")
    for title, plan in (("one request", plans.once), ("a stream of requests", plans.many)):
        if objective in (None, plan.objective):
            lines += ["", *_plan(title, plan, plans)]
    return "\n".join(lines)


def _plan(title: str, plan: StagePlan, plans: DevicePlans) -> Iterator[str]:
    by_one = f"the fastest device alone {plan.alone * 1e3:.3f}"
    alone = "no device can hold the model" if math.isinf(plan.alone) else by_one
    yield (
        f"{title}: {plan.seconds * 1e3:.3f} ms expected ({plan.why}); {alone},"
        f" no plan is below {plan.bound * 1e3:.3f} (gap {plan.gap:.1%})"
    )
    header = ("stage", "device", "kernels", "ms", "from", "to", "begins here because")
    rows = [_row(index, stage, plans) for index, stage in enumerate(plan.stages)]
    yield format_table(header, rows)


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
            "bound_ms": plan.bound * 1e3,
            "gap": plan.gap,
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
