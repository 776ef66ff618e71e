"""The forms of all models as a table and as JSON."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from backends.machine_limits import MachineLimits
from bench import markdown
from bench.ablation.steps import ENGINES, NAMES, Ablation
from bench.result import notes
from partition.techniques import Technique


def text(models: Sequence[Ablation], machine: MachineLimits) -> str:
    """Return the whole report as Markdown."""
    header = ("model", *(f"{name}, ms" for name in NAMES), "all over none", "right")
    lines = [
        f"{machine.threads} threads, float32, batch 1. FMA peak {machine.peak_gflops:.0f} GFLOP/s, memory bandwidth "
        f"{machine.bandwidth_gbs:.1f} GB/s, measured in this run.",
        "",
        "One technique more in each column; in brackets the median over the rounds of the latency without it over that "
        "with it.",
        *(f"{technique.name.lower()}: {technique.value}." for technique in Technique),
        "",
        markdown.table(header, [*(_row(model) for model in models), _means(models)]),
        *(line for model in models for line in notes(model.result) if line),
    ]
    return "\n".join(lines) + "\n"


def _row(model: Ablation) -> markdown.Row:
    engines = [model.result.engines[name] for name in ENGINES]
    *steps, whole = model.factors
    cells = [markdown.number(engine.latency_ms, ".2f") for engine in engines]
    right = all(engine.verdict is not None and engine.verdict.passed for engine in engines)
    return (
        model.result.model,
        cells[0],
        *(f"{cell} ({markdown.number(factor, '.2f')})" for cell, factor in zip(cells[1:], steps, strict=True)),
        markdown.number(whole, ".2f"),
        "yes" if right else "NO",
    )


def _means(models: Sequence[Ablation]) -> markdown.Row:
    *steps, whole = (_mean(factors) for factors in zip(*(model.factors for model in models), strict=True))
    return ("geometric mean", "", *(f"({step})" for step in steps), whole, "")


def _mean(factors: Sequence[float | None]) -> str:
    known = [factor for factor in factors if factor is not None]
    return f"{statistics.geometric_mean(known):.2f}" if known else ""


def as_json(models: Sequence[Ablation], machine: MachineLimits) -> str:
    """Return the report as JSON."""
    return json.dumps({"machine": asdict(machine), "models": [dict(_fields(model)) for model in models]}, indent=1)


def _fields(model: Ablation) -> Iterator[tuple[str, Any]]:
    yield "factors", dict(zip((*NAMES[1:], "all"), model.factors, strict=True))
    yield from model.result.as_dict().items()
