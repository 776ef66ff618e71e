"""What a compiled module consists of, as text: kernels, what runs elsewhere and why, and what passes declined to do."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from backends.kernel import KernelInfo
from backends.subgraphs import library_of
from fusion.counted import counted
from fusion.model_graph import ModelGraph
from fusion.module.open_plan import OpenRunPlan
from fusion.module.settings import Settings
from fusion.module.specialization import Code, Specialization
from fusion.options import GENERATOR
from fusion.report.device_work import device_work, work_tables
from fusion.report.placement import ModelPlacement, PlacedPart, kinds_of, placement_of
from fusion.report.table import format_table, shorten
from fusion.signature import FallbackNode, TensorSpec
from fusion.tensors import tensor_bytes

if TYPE_CHECKING:
    from fusion.compiled_module import CompiledModule

_SUMMARY_NAMES = 4
_SUMMARY_WIDTH = 80
_NAMED_NODES = 4
"""Nodes on ONNX Runtime for one reason that are named."""

_OF_ALL_CALLS = "ms: of all these calls; runner-up: the fastest other backend of those that were measured for them"
_UNITS = "all of one call; MB: read and written, saves MB: no longer, thanks to fusion; est.: without measuring"
_UNITS_OF_DEVICES = (
    "est. of products and attentions is what their tiles were chosen by, waves of blocks among it; of others the "
    "roofline time"
)


def explain(module: CompiledModule) -> str:
    """Return the report of `module`, with a part for each input shape it has been compiled for."""
    settings = module.settings
    cpu = json.loads(settings.target).get("mcpu", settings.architecture)
    here = f"{cpu} ({settings.architecture}), {counted(settings.threads, 'thread')}"
    lines = [
        f"compiled for {settings.device or here}",
        f"inputs:  {_signature(module.inputs)}",
        f"outputs: {_signature(module.outputs)}",
    ]
    if module.dynamic:
        lines.append(f"compiled when it is called; forms so far: {len(module.specializations)}")
        lines += [f"  {line}" for line in module.under_way]
    for form in module.specializations:
        lines += _explain_form(form, module.dynamic, settings)
    return "\n".join(lines)


def summary(module: CompiledModule) -> str:
    """Return what `module` is in one line, or two where it takes or returns much: `repr` shows it."""
    settings, forms = module.settings, module.specializations
    cpu = json.loads(settings.target).get("mcpu", settings.architecture)
    parts = [settings.device or f"{cpu}, {counted(settings.threads, 'thread')}"]
    if module.dynamic:
        parts.append(f"{counted(len(forms), 'form')} so far")
    elif forms[0].code is None:
        parts.append("wholly on ONNX Runtime")
    else:
        parts.append(counted(len({call.kernel for call in forms[0].code.plan.calls}), "kernel"))
        parts.append(f"{counted(len(forms[0].fallbacks), 'node')} on ONNX Runtime")
    function = f"{_shortly(module.inputs)} -> {_shortly(module.outputs)}"
    separator = "\n " if len(function) > _SUMMARY_WIDTH else "; "
    return f"<CompiledModule {function}{separator}{', '.join(parts)}>"


def _shortly(specs: Sequence[TensorSpec]) -> str:
    shown = _signature(specs[:_SUMMARY_NAMES])
    return f"({shown}, ... {len(specs)} in all)" if len(specs) > _SUMMARY_NAMES else f"({shown})"


def _signature(specs: Sequence[TensorSpec]) -> str:
    return ", ".join(f"{spec.name} {spec.dtype}{_shape(spec)}" for spec in specs) or "none"


def _shape(spec: TensorSpec) -> str:
    if spec.declared is None:
        return "[...]"
    return "[" + ", ".join("?" if size is None else str(size) for size in spec.declared) + "]"


def _explain_form(form: Specialization, titled: bool, settings: Settings) -> list[str]:
    lines = ["", f"for {_signature(form.inputs)}"] if titled else [""]
    if form.opened is not None:
        lines.append(_explain_sizes(form.opened))
    if form.code is not None:
        lines += _explain_kernels(form, form.code, [_UNITS, _UNITS_OF_DEVICES] if settings.device else [_UNITS])
    else:
        lines.append("no kernels: the whole model runs on ONNX Runtime")
    if form.fallbacks:
        subgraphs = sum(not library_of(key) for key in form.subgraphs)
        lines += ["", f"on ONNX Runtime: {counted(len(form.fallbacks), 'node')} in {counted(subgraphs, 'subgraph')}"]
        lines += _explain_fallbacks(form.fallbacks)
    lines += work_tables(device_work(form, settings))
    lines += [] if settings.device else _explain_placement(placement_of(form, settings.generator))
    lines += _explain_host(form.graph())
    lines += _explain_kept(form.graph())
    if form.notes:
        lines += ["", "notes:", *(f"  {note}" for note in form.notes)]
    return lines


def _explain_sizes(plan: OpenRunPlan) -> str:
    """Return for which sizes a form is, and at which the figures hold that depend on them."""
    return f"all sizes: {plan.describe_bounds()}; what depends on them is shown at {plan.describe_typical()}"


def _explain_kernels(form: Specialization, code: Code, units: Sequence[str]) -> list[str]:
    calls = code.plan.calls
    counts = Counter(call.kernel for call in calls)
    in_branches = sum(1 for call in calls if call.conditions)
    branches = f" ({in_branches} in branches, of which a run takes some)" if in_branches else ""
    weights = sum(tensor_bytes(tuple(w.shape), str(w.dtype)) for w in code.weights)
    summary = (
        f"{counted(len(counts), 'kernel')} in {counted(len(calls), 'call')}{branches}, "
        f"weights {_megabytes(weights)} MB, activations {_megabytes(sum(code.plan.storages))} MB"
    )
    saved = saved_by_kernel(form.graph())
    header = ("kernel", "calls", "MFLOP", "MB", "saves MB", "est. us", "template", "tile", "operators")
    rows = [_kernel_row(name, count, form.kernels.get(name), saved.get(name, 0)) for name, count in counts.items()]
    if not rows:
        return [summary]
    return [summary, format_table(header, rows), *units]


def _kernel_row(name: str, count: int, info: KernelInfo | None, saved: int) -> tuple[str, ...]:
    if info is None:
        return (shorten(name, 48), str(count), *[""] * 7)
    sizes = f"{info.flops / 1e6:.2f}", _megabytes(info.bytes), _megabytes(saved), f"{info.estimate_us:.1f}"
    return (shorten(name, 48), str(count), *sizes, info.template, shorten(info.tile, 48), " ".join(info.ops))


def saved_by_kernel(graph: ModelGraph) -> dict[str, int]:
    """Return the bytes that fusion saves in one call of each kernel, as in `GraphCall.saved`."""
    return {call.op: call.saved for call in graph.calls if call.kind == "kernel"}


def _explain_fallbacks(nodes: Sequence[FallbackNode]) -> list[str]:
    """Return a line for each reason: the nodes, of many the first, and how many of each operator follow."""
    groups: dict[str, list[FallbackNode]] = {}
    for node in nodes:
        groups.setdefault(node.reason, []).append(node)
    lines = []
    for reason, alike in groups.items():
        names = ", ".join(f"{node.op} {node.node!r}" for node in alike[:_NAMED_NODES])
        more = Counter(node.op for node in alike[_NAMED_NODES:]).most_common()
        rest = f" and {', '.join(f'{count} {op}' for op, count in more)} more" if more else ""
        lines.append(f"  {names}{rest}: {reason}")
    return lines


def _explain_placement(placement: ModelPlacement) -> list[str]:
    """Return where the model runs: a line, and a table of what libraries run, and of what else was measured."""
    lines = ["", f"placement: {placement}"]
    alike: dict[tuple[str, str], list[PlacedPart]] = {}
    for part in placement.parts:
        if part.backend != GENERATOR or part.seconds is not None:
            alike.setdefault((part.backend, part.call), []).append(part)
    if not alike:
        return lines
    header = ("backend", "calls", "operators", "ms", "runner-up", "its ms", "what")
    return [*lines, format_table(header, [_part_row(parts) for parts in alike.values()]), _OF_ALL_CALLS]


def _part_row(parts: Sequence[PlacedPart]) -> tuple[str, ...]:
    """Return the row of calls that are one kernel, or one part on a library."""
    first, calls = parts[0], len(parts)
    operators = [operator for part in parts for operator in part.operators]
    kinds = kinds_of(operators) or first.what  # where it has none
    took, other = (_milliseconds(each, calls) for each in (first.seconds, first.runner_up_seconds))
    return (first.backend, str(calls), str(len(operators)), took, first.runner_up or "", other, kinds)


def _milliseconds(seconds: float | None, calls: int) -> str:
    return "not measured" if seconds is None else f"{calls * seconds * 1e3:.3f}"


def _explain_host(graph: ModelGraph) -> list[str]:
    """Return what is neither a kernel nor a fallback: functions of the host, as sizes that the data tells need them."""
    lines = []
    for position, call in enumerate(graph.calls):
        if call.kind == "runtime":
            inside = [f"{each.op} {each.name!r}" for each in graph.operators if position in each.calls]
            lines.append(f"  {', '.join(inside) or call.name}: {call.op}")
    return ["", "called on the host:", *lines] if lines else []


def _explain_kept(graph: ModelGraph) -> list[str]:
    if not graph.kept:
        return []
    edges = Counter(f"{edge.producer} -> {edge.consumer}: {edge.reason}" for edge in graph.kept)
    size = sum(edge.bytes for edge in graph.kept)
    lines = [f"  {text}{f' ({count} times)' if count > 1 else ''}" for text, count in edges.items()]
    return ["", f"not fused: {counted(len(graph.kept), 'edge')}, {_megabytes(size)} MB go through memory", *lines]


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.2f}"


def as_dict(module: CompiledModule) -> dict[str, Any]:
    """Return the same report as plain data, for JSON."""
    return {
        "settings": dataclasses.asdict(module.settings),
        "inputs": [dataclasses.asdict(spec) for spec in module.inputs],
        "outputs": [dataclasses.asdict(spec) for spec in module.outputs],
        "dynamic": module.dynamic,
        "forms": [_form_as_dict(form, module.settings) for form in module.specializations],
    }


def _form_as_dict(form: Specialization, settings: Settings) -> dict[str, Any]:
    calls = () if form.code is None else form.code.plan.calls
    counts = Counter(call.kernel for call in calls)
    return {
        "inputs": [dataclasses.asdict(spec) for spec in form.inputs],
        "calls": dict(counts),
        "calls_in_branches": dict(Counter(call.kernel for call in calls if call.conditions)),
        "kernels": {name: dataclasses.asdict(info) for name, info in form.kernels.items()},
        "devices": {
            name: [dataclasses.asdict(work) for work in works] for name, works in device_work(form, settings).items()
        },
        "fallbacks": [dataclasses.asdict(node) for node in form.fallbacks],
        "placement": dataclasses.asdict(placement_of(form, settings.generator)),
        "saved": saved_by_kernel(form.graph()),
        "kept": [dataclasses.asdict(edge) for edge in form.graph().kept],
        "operators": [dataclasses.asdict(operator) for operator in form.graph().operators],
        "graph": [dataclasses.asdict(call) for call in form.graph().calls],
        "notes": list(form.notes),
    }
