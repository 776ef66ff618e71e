"""The form of ours for all sizes against forms for one size each: calls, compilation, file and memory.

Calls are compared in one process, in turns. In processes of their own, one after the other, forms that are equally
fast differed by 1.3 and more: the first was timed right after the second had been compiled, and on a shared machine all
calls of one second may take twice as long as those of the next.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.peers import OURS
from bench.peers.engine import Arrays, Job
from bench.remote import Worker
from bench.streams.choose import by_size, spread
from bench.streams.result import AgainstStatic, Costs, Shapes, StaticForm

TURNS_S = 0.5
"""Of each shape, or what a few turns take."""


@dataclass(frozen=True)
class StaticPlan:
    """How forms are compared.

    Attributes:
        job: Without shapes.
        calls: The shapes of all inputs, call by call.
        draw: Returns the inputs of a call.
        most: How many shapes are compiled by themselves.
        call_s: Deadline in seconds of each compilation and call.
    """

    job: Job
    calls: Sequence[Shapes]
    draw: Callable[[int], Arrays]
    most: int
    call_s: float


def against_static(plan: StaticPlan) -> AgainstStatic:
    """Return what the form for all sizes is beside static ones, of shapes spread over those of `plan`; its costs are
    beside those of the static form of the largest shape, as it runs that and the others.

    Raises:
        EngineError: Ours fails.
    """
    ordered = by_size(plan.calls)
    chosen, largest = spread(ordered, plan.most), ordered[-1]
    static = dataclasses.replace(plan.job, shapes=plan.calls[largest])
    with TemporaryDirectory(prefix="fusion-bench-") as name:
        folders = Path(name, "open"), Path(name, "static")
        for folder in folders:
            folder.mkdir()
        costs = (
            costs_of(plan, plan.job, folders[0], [largest, *chosen]),
            costs_of(plan, static, folders[1], [largest]),
        )
        forms = _time_forms(plan, chosen, folders[0])
    return AgainstStatic(largest, *costs, forms)


def costs_of(plan: StaticPlan, job: Job, folder: Path, places: Sequence[int]) -> Costs:
    """Return what compiling `job` takes, and running the calls at `places` in a process that loads what was saved.

    It is compiled with the first call: which sizes a form takes may depend on that.
    """
    inputs = plan.draw(places[0])
    with Worker(OURS, job.threads) as worker:
        open_s = worker.ask(plan.call_s, "open", job)
        first_s, again_s = (worker.ask(plan.call_s, "call", inputs)[0] for _ in range(2))
        compiling = _grown(worker, plan)
        saved = worker.ask(plan.call_s, "save", folder)
    with Worker(OURS, job.threads) as worker:
        worker.ask(plan.call_s, "load", job, folder)
        for place in places:
            worker.ask(plan.call_s, "call", plan.draw(place))
        running = _grown(worker, plan)
    file_bytes = sum(path.stat().st_size for path in folder.iterdir()) if saved else None
    return Costs(open_s + first_s - again_s, compiling, running, file_bytes)


def _grown(worker: Worker, plan: StaticPlan) -> int:
    """Return the peak memory of a worker without that of the libraries that it imported."""
    peak, base = worker.ask(plan.call_s, "rss")
    return int(peak - base)


def _time_forms(plan: StaticPlan, places: Sequence[int], folder: Path) -> list[StaticForm]:
    forms = []
    with Worker(OURS, plan.job.threads) as worker:
        worker.ask(plan.call_s, "load", plan.job, folder)
        for place in places:
            job = dataclasses.replace(plan.job, shapes=plan.calls[place])
            open_s, static_s = worker.ask(plan.call_s, "beside", job, plan.draw(place), TURNS_S)
            forms.append(StaticForm(place, open_s, static_s))
    return forms
