"""Where the kernels of a compiled form would run on several devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backends.kernel import KernelInfo
from backends.registry import device_runtimes
from fusion.errors import OptionError
from fusion.model_graph import GraphCall, ModelGraph
from fusion.module.specialization import Specialization
from fusion.report.table import format_table
from placement.choose import PlanChoice
from placement.devices import OTHER, Device, Work
from placement.problem import LATENCY
from placement.simulate import loads
from placement.tasks import PlacedOperator

NO_BOUND = "no bound was found that no plan is below"


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
    """Return the calls of a form with their work; its inputs are where they are read.

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
            call.name,
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
    others = ", ".join(f"{name} {seconds:.0f}" for name, seconds in data["methods_us"].items())
    return "\n".join([
        f"{choice.plan.objective}: {data['plan_us']:.0f} us {_each(choice)} by {choice.method}",
        f"no plan is below {data['bound_us']:.0f} us (gap {data['gap']:.1%})" if choice.bound else NO_BOUND,
        format_table(("device", "kernels", "busy us", "busy", "MB", "first kernel"), rows),
        format_table(FIGURES, list(map(figures_row, data["devices"]))),
        f"copies between devices: {data['copies']}",
        f"us by method: {others}",
        *(f"{name} has no plan: {reason}" for name, reason in choice.declined.items()),
    ])  # fmt: skip


def _work_row(device: Mapping[str, Any]) -> tuple[str, ...]:
    busy = f"{device['busy_us']:.0f}", f"{device['busy']:.0%}"
    return (device["device"], str(device["tasks"]), *busy, f"{device['memory_mb']:.1f}", device["first"])


FIGURES = ("device", "GFLOP/s", "GB/s", "GB", "us to start a kernel", "figures from")
"""Columns of what devices can do."""


def figures_row(device: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a device of `plan_dict` can do, for these columns."""
    speeds = ", ".join(f"{kind} {speed:g}" for kind, speed in device["gflops"].items())
    numbers = device["gbs"], device["memory_gb"], device["start_us"]
    return (device["device"], speeds, *(f"{number:g}" for number in numbers), device["source"])


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
        "copies": len(plan.copies),
        "methods_us": {name: found.seconds * 1e6 for name, found in choice.others.items()},
        "placement": {
            task.name: problem.topology.devices[k].name
            for task, k in zip(problem.graph.tasks, plan.placement, strict=True)
        },
    }
