"""Where the kernels of a compiled form would run on several devices."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from backends.kernel import KernelInfo
from backends.registry import device_runtimes
from fusion.errors import OptionError
from fusion.model_graph import GraphCall, ModelGraph
from fusion.module.specialization import Specialization
from fusion.report.table import format_table, shorten
from placement.choose import PlanChoice
from placement.cuts import PlanCut, cuts_of
from placement.devices import OTHER, Device, Work
from placement.problem import LATENCY
from placement.simulate import loads
from placement.tasks import PlacedOperator

NO_BOUND = "no bound was found that no plan is below"
_MOST_CUTS = 12
"""That are told one by one: those whose copies take the longest."""


def known_devices(precision: str) -> dict[str, Device]:
    """Return the devices that files of devices may name by their architecture, by published figures.

    Args:
        precision: Of products, as of `fusion.compile`.
    """
    figures = [each for runtime in device_runtimes().values() for each in runtime.figures()]
    return {
        each.arch: Device(
            each.name,
            _rates(each.gflops, precision),
            gbs=each.gbs,
            memory=each.memory_bytes,
            start_us=each.start_us,
            source=f"{each.name}: {each.source}",
        )
        for each in figures
    }


def _rates(gflops: Mapping[str, float], precision: str) -> dict[str, float]:
    products = gflops["bf16" if precision.startswith("bf16") else precision]
    return {OTHER: gflops["fp32"], "matmul": products, "convolution": products}


def placed_operators(form: Specialization) -> list[PlacedOperator]:
    """Return the calls of a form with their work, named by their kernel and what they make; its inputs are where they
    are read.

    Raises:
        OptionError: Kernels have sizes that only a call knows, or parts run in ONNX Runtime, whose work nobody counts.
    """
    graph = form.graph()
    if form.opened is not None:
        raise OptionError(
            "the model cannot be planned", why="it is compiled for all sizes", hint="give all sizes: --shape"
        )
    calls = {index: call for index, call in enumerate(graph.calls) if call.kind != "input"}
    position = {index: placed for placed, index in enumerate(calls)}
    results = _results(graph)
    return [
        PlacedOperator(
            f"{call.op} {call.name}",
            _work(call, form.kernels.get(call.op), results.get(index, 0)),
            tuple(position[read.source] for read in call.reads if read.source in position),
            weights=call.weights,
            result=results.get(index) or form.kernels[call.op].written,
        )
        for index, call in calls.items()
    ]


def _work(call: GraphCall, kernel: KernelInfo | None, result: int) -> Work:
    """Return what a call takes. The loops of a check are not counted: it reads and writes its values once."""
    if kernel is not None:
        moved = kernel.bytes or sum(read.bytes for read in call.reads) + result
        if moved:
            return Work(kernel.work, kernel.flops, moved)
    raise OptionError(
        "the model cannot be planned",
        where=call.name,
        why=f"it is of the kind {call.kind}, and what it takes is not known",
        hint="plan a model that is kernels only, with all sizes given: --shape",
    )


def _results(graph: ModelGraph) -> dict[int, int]:
    """Return the bytes of what each call gives to others."""
    found: dict[int, int] = {}
    for call in graph.calls:
        for read in call.reads:
            found[read.source] = max(found.get(read.source, 0), read.bytes)
    return found


def plan_text(choice: PlanChoice) -> str:
    """Return a plan as a few lines and tables of what each device does and of what it can do."""
    data = plan_dict(choice)
    rows = list(map(_work_row, data["devices"]))
    links = [format_table(LINKS, list(map(link_row, data["links"])))] if data["links"] else []
    cuts = [format_table(CUTS, list(map(cut_row, data["cuts"])))] if data["cuts"] else []
    others = ", ".join(f"{name} {seconds:.0f}" for name, seconds in data["methods_us"].items())
    return "\n".join([
        f"{choice.plan.objective}: {data['plan_us']:.0f} us {_each(choice)} by {choice.method}",
        f"no plan is below {data['bound_us']:.0f} us (gap {data['gap']:.1%})" if choice.bound else NO_BOUND,
        format_table(("device", "kernels", "busy us", "busy", "MB", "first kernel"), rows),
        format_table(FIGURES, list(map(figures_row, data["devices"]))),
        *links,
        about_cuts(data),
        *cuts,
        f"us by method: {others}",
        *(f"{name} has no plan: {reason}" for name, reason in choice.declined.items()),
    ])  # fmt: skip


def _work_row(device: Mapping[str, Any]) -> tuple[str, ...]:
    busy = f"{device['busy_us']:.0f}", f"{device['busy']:.0%}"
    first = shorten(device["first"], 40)
    return (device["device"], str(device["tasks"]), *busy, f"{device['memory_mb']:.1f}", first)


FIGURES = ("device", "GFLOP/s", "GB/s", "GB", "us to start a kernel", "figures from")
"""Columns of what devices can do."""


def figures_row(device: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a device of `plan_dict` can do, for these columns."""
    speeds = ", ".join(f"{kind} {speed:g}" for kind, speed in device["gflops"].items())
    numbers = device["gbs"], device["memory_gb"], device["start_us"]
    return (device["device"], speeds, *(f"{number:g}" for number in numbers), device["source"])


LINKS = ("link", "copies", "busy us", "busy", "MB")
"""Columns of what links carry."""


def link_row(link: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a link of `plan_dict` carries, for these columns."""
    numbers = f"{link['busy_us']:.0f}", f"{link['busy']:.0%}", f"{link['mb']:.3f}"
    return (f"{link['from']} → {link['to']}", str(link["copies"]), *numbers)


CUTS = ("cut behind", "from", "to", "MB", "us", "because the plan takes, otherwise")
"""Columns of where the graph is cut, and why."""


def cut_row(cut: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a cut of `plan_dict` for these columns."""
    made = _otherwise(cut["us_if_made_there"], f"with it on {cut['to']}", f"{cut['to']} cannot make it")
    several = f"its {len(cut['readers'])} readers" if len(cut["readers"]) > 1 else "its reader"
    behind = shorten(cut["behind"], 40) + (f", in {cut['copies']} of {cut['requests']}" if cut["requests"] > 1 else "")
    read = _otherwise(cut["us_if_read_here"], f"with {several} on {cut['from']}", f"{cut['from']} cannot read it")
    return (
        behind, cut["from"], cut["to"], f"{cut['mb']:.3f}", f"{cut['us']:.1f}", f"{made}; {read}"
    )  # fmt: skip


def about_cuts(data: Mapping[str, Any]) -> str:
    """Return how many copies there are, and how many of them are told, of `plan_dict`."""
    count, told = data["copies"], sum(cut["copies"] for cut in data["cuts"])
    if not count:
        return "the graph is not cut: nothing is copied between devices"
    return f"copies between devices: {count}" + (f", of which these {told} take the longest" if told < count else "")


def _otherwise(us: float | None, how: str, impossible: str) -> str:
    return impossible if us is None else f"{us:.1f} us {how}"


def _each(choice: PlanChoice) -> str:
    if choice.plan.objective == LATENCY:
        return "for one request"
    return "a request" + (f", in rounds of {choice.requests}," if choice.requests > 1 else "")


def plan_dict(choice: PlanChoice) -> dict[str, Any]:
    """Return a plan as plain data."""
    problem, plan = choice.problem, choice.plan
    busy = loads(problem, plan.placement)
    devices = []
    for k, device in enumerate(problem.topology.devices):
        tasks = [task for task in plan.order if plan.placement[task] == k]
        devices.append({
            "device": device.name,
            "tasks": len(tasks),
            "busy_us": busy.get((k, k), 0.0) * 1e6,
            "busy": busy.get((k, k), 0.0) / plan.period if plan.period else 0.0,
            "memory_mb": sum(problem.memory[task] for task in tasks) / 1e6,
            "first": problem.graph.tasks[tasks[0]].name if tasks else "",
            "gflops": dict(device.gflops),
            "gbs": device.gbs,
            "memory_gb": device.memory / 1e9,
            "start_us": device.start_us,
            "source": device.source,
        })  # fmt: skip
    return {
        "objective": plan.objective,
        "method": choice.method,
        "requests": choice.requests,
        "plan_us": choice.seconds * 1e6,
        "bound_us": choice.bound * 1e6,
        "gap": choice.gap,
        "devices": devices,
        "links": _links(choice),
        "copies": len(plan.copies),
        "cuts": [_cut(choice, cut) for cut in cuts_of(problem, plan, _MOST_CUTS, choice.requests)],
        "methods_us": {name: found.seconds * 1e6 for name, found in choice.others.items()},
        "placement": {
            task.name: problem.topology.devices[k].name
            for task, k in zip(problem.graph.tasks, plan.placement, strict=True)
        },
    }


def _links(choice: PlanChoice) -> list[dict[str, Any]]:
    """Return what each link that is used carries; times of all requests of a round."""
    problem, plan = choice.problem, choice.plan
    names = [device.name for device in problem.topology.devices]
    copies, sizes = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    for copy in plan.copies:
        copies[copy.source, copy.target] += 1
        sizes[copy.source, copy.target] += int(problem.sent[copy.task])
    busy = loads(problem, plan.placement)
    return [
        {
            "from": names[source],
            "to": names[target],
            "copies": count,
            "busy_us": busy[source, target] * 1e6,
            "busy": busy[source, target] / plan.period if plan.period else 0.0,
            "mb": sizes[source, target] / 1e6,
        }
        for (source, target), count in sorted(copies.items())
    ]


def _cut(choice: PlanChoice, cut: PlanCut) -> dict[str, Any]:
    """Return a cut; what the plan would take otherwise is of a request, as the plan's time is."""
    problem, copy = choice.problem, cut.copies[0]
    devices = problem.topology.devices

    def us(seconds: float) -> float | None:
        return None if math.isinf(seconds) else seconds / choice.requests * 1e6

    return {
        "behind": _own_name(choice, copy.task),
        "from": devices[copy.source].name,
        "to": devices[copy.target].name,
        "readers": [_own_name(choice, task) for task in cut.readers],
        "copies": len(cut.copies),
        "requests": choice.requests,
        "mb": problem.sent[copy.task] / 1e6,
        "us": copy.seconds * 1e6,
        "us_if_made_there": us(cut.made_there),
        "us_if_read_here": us(cut.read_here),
    }


def _own_name(choice: PlanChoice, task: int) -> str:
    """Return the name of a task without that of the request."""
    name = choice.problem.graph.tasks[task].name
    return name.rpartition(" of request ")[0] if choice.requests > 1 else name
