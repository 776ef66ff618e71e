"""The page of a divided model: when each device computes and each link copies by its plans, against their bounds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fusion
from fusion.devices.choose_stages import Pipeline, StagePlan
from fusion.devices.device_plans import DevicePlans
from fusion.devices.explain import HEADER, TITLES, about_devices, stage_rows, summary
from fusion.report.gantt import REQUESTS, lanes_of_all, ticks
from fusion.report.page import page_environment, write_html
from placement.plan import DevicePlan
from placement.problem import LATENCY, PlacementProblem
from placement.simulate import schedule


def write_stages_page(plans: DevicePlans, path: Path, title: str, objective: str | None) -> None:
    """Write `path`, a page of both plans, or that for `objective`, that needs nothing else.

    Raises:
        OptionError: The file cannot be written.
    """
    write_html(path, render_stages(plans, title, objective))


def render_stages(plans: DevicePlans, title: str, objective: str | None = None) -> str:
    """Return the page."""
    return page_environment().get_template("stages.html.j2").render(
        title=title, version=fusion.__version__, about=about_devices(plans), header=HEADER,
        plans=list(_drawn(plans, objective)),
    )  # fmt: skip


def _drawn(plans: DevicePlans, objective: str | None) -> Iterator[dict[str, Any]]:
    """Yield the plans as the template wants them: of a stream, as many requests as begin while the slowest pipeline
    answers some."""
    for plan, problem in ((plans.once, plans.problem), (plans.many, plans.together)):
        if objective not in (None, plan.objective):
            continue
        timed = [_timed(pipeline, plan, problem) for pipeline in plan.pipelines]
        is_stream = plan.objective != LATENCY
        slowest = max(each.period for each in timed)
        lanes = lanes_of_all(problem, timed, (REQUESTS - 0.5) * slowest if is_stream else 0.0)
        span = max((bar.end for lane in lanes for bar in lane.bars), default=0.0) or 1.0
        yield {
            "title": TITLES[plan.objective],
            "summary": summary(plan),
            "lanes": lanes,
            "span": span,
            "ticks": list(ticks(span)),
            "bound": plan.bound,
            "is_stream": is_stream,
            "rows": stage_rows(plan, plans),
        }


def _timed(pipeline: Pipeline, plan: StagePlan, problem: PlacementProblem) -> DevicePlan:
    """Return when the tasks of a pipeline run: those of a stage one after the other, as the simulator has it."""
    devices = {task: stage.device for stage in pipeline.stages for task in stage.tasks}
    order = [task for stage in pipeline.stages for task in stage.tasks]
    return schedule(problem, plan.objective, [devices[task] for task in problem.tasks], order)
