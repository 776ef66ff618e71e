"""Comparisons on a device as Markdown and JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

from bench import markdown
from bench.gpu.engines import MAX_AUTOTUNE, OURS
from bench.gpu.result import DeviceReport, Goal, SubjectResult, geometric_mean
from bench.gpu.subjects import MODEL


def text(report: DeviceReport) -> str:
    """Return tables of kernels and of models, what is to be reached, the worst three, and what failed."""
    copied = markdown.number(report.copy_gbs, ".0f") or "an unknown number of"
    kernels = [each for each in report.subjects if each.subject.kind != MODEL]
    models = report.of_kind(MODEL)
    parts = [
        f"{report.device}. A copy on the device reads and writes {copied} GB/s, measured in this run.",
        _table(report, kernels),
        _table(report, models),
        _mean(models),
        f"A ratio is the median over the rounds of (time of the engine / time of {OURS}): above 1, {OURS} is faster.",
        markdown.table(("to reach", "found", "bound", "reached"), [_goal_row(goal) for goal in report.goals()]),
        "\n".join(f"- among the worst: {each.subject}: {_ratio(each.least_ratio())}" for each in report.worst()),
        "\n".join(_notes(report.subjects)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def as_json(report: DeviceReport) -> str:
    """Return the report as JSON: every field, with ratios and goals worked out."""
    data = {
        "device": report.device,
        "copy_gbs": report.copy_gbs,
        "goals": [{**dataclasses.asdict(goal), "is_reached": goal.is_reached} for goal in report.goals()],
        "subjects": [
            {
                **dataclasses.asdict(each),
                "ratios": {name: each.ratio(name) for name in each.engines if name != OURS},
                "memory_share": report.memory_share(each),
                "passed": each.passed,
            }
            for each in report.subjects
        ],
    }
    return json.dumps(data, indent=1)


def _table(report: DeviceReport, results: Sequence[SubjectResult]) -> str:
    if not results:
        return ""
    others = list(dict.fromkeys(name for each in results for name in each.engines if name != OURS))
    header = (
        "what", "batch", "numbers", f"{OURS} us", *(f"{name} us" for name in others),
        *(f"{name} ratio" for name in others), "TFLOP/s", "of copy", "compile s", "error", "right",
    )  # fmt: skip
    return markdown.table(header, [_row(report, each, others) for each in results])


def _row(report: DeviceReport, result: SubjectResult, others: Sequence[str]) -> markdown.Row:
    ours, verdict = result.engines[OURS], result.engines[OURS].verdict
    times = [result.engines[name].seconds if name in result.engines else None for name in others]
    return (
        result.subject.name,
        str(result.subject.batch),
        result.subject.precision,
        _microseconds(ours.seconds),
        *map(_microseconds, times),
        *(_ratio(result.ratio(name)) for name in others),
        markdown.number(result.tflops(), ".1f"),
        markdown.number(report.memory_share(result), ".0%"),
        markdown.number(ours.load_s, ".1f"),
        f"{verdict.error:.1e}" if verdict else "",
        ("yes" if verdict.passed else "NO") if verdict else "failed",
    )


def _mean(models: Sequence[SubjectResult]) -> str:
    if not models:
        return ""
    return f"Geometric mean of the ratios to {MAX_AUTOTUNE}: {_ratio(geometric_mean(models, MAX_AUTOTUNE)) or 'none'}."


def _goal_row(goal: Goal) -> markdown.Row:
    bound = f"{'at most' if goal.is_most else 'at least'} {goal.bound:.2f}"
    return goal.what, markdown.number(goal.value, ".2f"), bound, "yes" if goal.is_reached else "NO"


def _ratio(value: float | None) -> str:
    return markdown.number(value, ".2f")


def _microseconds(seconds: float | None) -> str:
    return markdown.number(None if seconds is None else seconds * 1e6, ".1f")


def _notes(results: Sequence[SubjectResult]) -> list[str]:
    found = []
    for each in results:
        for name, engine in each.engines.items():
            if engine.failure:
                found.append(f"- {each.subject}: no numbers of {name}: {engine.failure}")
            if engine.verdict:
                found += [f"- {each.subject}: {name} is not right: {reason}" for reason in engine.verdict.reasons]
    return found
