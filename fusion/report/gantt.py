"""The page of a plan: when each device computes, each link copies, and what is left of the time, against the bound."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import fusion
from fusion.report.device_plan import FIGURES, figures_row, plan_dict
from fusion.report.page import page_environment, write_html
from placement.choose import PlanChoice
from placement.plan import DevicePlan
from placement.problem import LATENCY, PlacementProblem

_REQUESTS = 3
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
    devices, tasks = problem.topology.devices, problem.graph.tasks
    kernels, copies = defaultdict[int, list[Bar]](list), defaultdict[tuple[int, int], list[Bar]](list)
    for request in range(1 if plan.objective == LATENCY else _REQUESTS):
        later = request * plan.period
        for task, (device, start) in enumerate(zip(plan.placement, plan.starts, strict=True)):
            bar = Bar(tasks[task].name, start + later, problem.seconds[task][device], request)
            kernels[device].append(bar)
        for copy in plan.copies:
            bar = Bar(tasks[copy.task].name, copy.start + later, copy.seconds, request)
            copies[copy.source, copy.target].append(bar)
    lanes = [_lane(device.name, "kernel", kernels[place], plan) for place, device in enumerate(devices)]
    named = {(devices[a].name, devices[b].name): bars for (a, b), bars in sorted(copies.items())}
    return [*lanes, *(_lane(f"{a} → {b}", "copy", bars, plan) for (a, b), bars in named.items())]


def _lane(name: str, kind: str, bars: list[Bar], plan: DevicePlan) -> Lane:
    busy = sum(bar.seconds for bar in bars if bar.request == 0)
    ordered = tuple(sorted(bars, key=lambda bar: bar.start))
    return Lane(name, kind, ordered, busy / plan.period if plan.period else 0.0)


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
        title=title, version=fusion.__version__, plan=data, lanes=lanes, span=span, ticks=list(_ticks(span)),
        figures=FIGURES, figures_rows=list(map(figures_row, data["devices"])),
        bound=choice.bound * choice.requests, latency=choice.plan.latency * 1e6, declined=choice.declined,
    )  # fmt: skip


def _ticks(span: float) -> Iterator[tuple[float, str]]:
    """Yield places on the axis, as shares of `span`, and what stands there."""
    for place in range(_TICKS + 1):
        share = place / _TICKS
        yield share, f"{share * span * 1e6:.0f}"
