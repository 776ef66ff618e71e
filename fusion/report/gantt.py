"""The page of a plan: when each device computes, each link copies, and what is left of the time, against the bound."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import fusion
from fusion.report.device_plan import CUTS, FIGURES, NO_BOUND, about_cuts, cut_row, figures_row, plan_dict
from fusion.report.page import page_environment, write_html
from placement.choose import PlanChoice
from placement.plan import DevicePlan
from placement.problem import LATENCY, PlacementProblem
from placement.simulate import loads

REQUESTS = 3
"""Of a stream, so many are drawn: the first alone would not show how stages overlap."""
_TICKS = 6


@dataclass(frozen=True)
class Bar:
    """What a device or a link does at a time.

    Attributes:
        name: Of the kernel, or of the one whose result is copied.
        start, seconds: When, and how long.
        request: Which of the requests drawn it belongs to, from 0 on.
    """

    name: str
    start: float
    seconds: float
    request: int

    @property
    def end(self) -> float:
        return self.start + self.seconds


@dataclass(frozen=True)
class Lane:
    """A device, or a link that copies cross.

    Attributes:
        name: Of the device; of a link, both ends.
        kind: "kernel" or "copy".
        bars: In order.
        busy: Share of a period that it works for one request.
    """

    name: str
    kind: str
    bars: tuple[Bar, ...]
    busy: float


def lanes_of(problem: PlacementProblem, plan: DevicePlan) -> list[Lane]:
    """Return what each device does, those without a task too, then each link that is used: for the one request of a
    plan for latency, or for the first few of a stream."""
    return lanes_of_all(problem, [plan], 0.0 if plan.objective == LATENCY else (REQUESTS - 0.5) * plan.period)


def lanes_of_all(problem: PlacementProblem, plans: Sequence[DevicePlan], seconds: float) -> list[Lane]:
    """Return what several plans beside each other do: of each, the requests that begin within so many seconds."""
    devices, tasks = problem.topology.devices, problem.graph.tasks
    kernels, copies = defaultdict[int, list[Bar]](list), defaultdict[tuple[int, int], list[Bar]](list)
    busy = defaultdict[tuple[int, int], float](float)
    for plan in plans:
        for request in range(int(seconds / plan.period) + 1 if plan.period else 1):
            later = request * plan.period
            for task, (device, start) in enumerate(zip(plan.placement, plan.starts, strict=True)):
                bar = Bar(tasks[task].name, start + later, problem.seconds[task][device], request)
                kernels[device].append(bar)
            for copy in plan.copies:
                bar = Bar(tasks[copy.task].name, copy.start + later, copy.seconds, request)
                copies[copy.source, copy.target].append(bar)
        for resource, load in loads(problem, plan.placement).items():
            busy[resource] += load / plan.period if plan.period else 0.0
    lanes = [_lane(device.name, "kernel", kernels[k], busy[k, k]) for k, device in enumerate(devices)]
    links = ((f"{devices[a].name} → {devices[b].name}", bars, busy[a, b]) for (a, b), bars in sorted(copies.items()))
    return [*lanes, *(_lane(name, "copy", bars, share) for name, bars, share in links)]


def _lane(name: str, kind: str, bars: list[Bar], busy: float) -> Lane:
    return Lane(name, kind, tuple(sorted(bars, key=lambda bar: bar.start)), busy)


def write_plan_page(choice: PlanChoice, path: Path, title: str) -> None:
    """Write `path`, a page that needs nothing else.

    Raises:
        OptionError: The file cannot be written.
    """
    write_html(path, render_plan(choice, title))


def render_plan(choice: PlanChoice, title: str) -> str:
    """Return the page of the plan of `choice`."""
    lanes = lanes_of(choice.problem, choice.plan)
    span = max((bar.end for lane in lanes for bar in lane.bars), default=0.0) or 1.0
    data = plan_dict(choice)
    return page_environment().get_template("plan.html.j2").render(
        title=title, version=fusion.__version__, plan=data, lanes=lanes, span=span, ticks=list(ticks(span)),
        figures=FIGURES, figures_rows=list(map(figures_row, data["devices"])),
        bound=choice.bound * choice.requests, latency=choice.plan.latency * 1e6, declined=choice.declined,
        no_bound=NO_BOUND, about_cuts=about_cuts(data), cuts=CUTS, cuts_rows=list(map(cut_row, data["cuts"])),
    )  # fmt: skip


def ticks(span: float) -> Iterator[tuple[float, str]]:
    """Yield places on the axis, as shares of `span`, and what stands there."""
    for place in range(_TICKS + 1):
        share = place / _TICKS
        yield share, f"{share * span * 1e6:.0f}"
