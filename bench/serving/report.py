"""Tables and JSON of what engines did with many callers and beside busy processes."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from bench import markdown
from bench.peers import OURS
from bench.serving.measure import LATENCY, THROUGHPUT, Serving


def text(models: Sequence[Serving], threads: int, cpus: int) -> str:
    """Return the whole report as Markdown."""
    peers = [engine for engine in THROUGHPUT if engine != OURS]
    header = ("model", "callers", *(f"{name}, runs/s" for name in THROUGHPUT), *(f"over {name}" for name in peers))
    lines = [
        f"{threads} threads for each engine, {cpus} CPUs, float32, batch 1.",
        "",
        "Runs a second of all callers of one module; over = median over the rounds of fusion's over the engine's.",
        "",
        markdown.table((*header, "right"), [row for model in models for row in _served_rows(model, peers)]),
        "",
        f"Calls alone, and beside {cpus} busy processes; ms, and how many times as long.",
        "",
        markdown.table(
            ("model", "engine", "median", "p99", "busy median", "busy p99", "median grows by", "p99 grows by"),
            [row for model in models for row in _latency_rows(model)],
        ),
        *(
            f"{model.model}, {engine}: {result.failure}"
            for model in models
            for engine, result in model.engines.items()
            if result.failure
        ),
    ]
    return "\n".join(lines) + "\n"


def _served_rows(model: Serving, peers: Sequence[str]) -> Iterator[markdown.Row]:
    for callers, engines in sorted(model.served.items()):
        rates = {name: [served.per_s for served in engines[name]] for name in THROUGHPUT}
        yield (
            model.model,
            str(callers),
            *(markdown.number(statistics.median(rates[name]) if rates[name] else None, ".1f") for name in THROUGHPUT),
            *(markdown.number(_ratio(rates[OURS], rates[name]), ".2f") for name in peers),
            "yes" if model.right else "NO",
        )


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    if not ours or len(ours) != len(theirs):
        return None
    return statistics.median(own / other for own, other in zip(ours, theirs, strict=True))


def _latency_rows(model: Serving) -> Iterator[markdown.Row]:
    for engine in LATENCY:
        quiet, busy = model.quiet[engine], model.busy[engine]
        if quiet and busy:
            found = [quantile(times, share) * 1e3 for times in (quiet, busy) for share in (0.5, 0.99)]
            factors = [after / before for before, after in zip(found[:2], found[2:], strict=True)]
            yield (model.model, engine, *(f"{value:.3f}" for value in found), *(f"{value:.2f}" for value in factors))


def quantile(times: Sequence[float], share: float) -> float:
    """Return the least of `times` that is not below this share of them."""
    return sorted(times)[max(0, math.ceil(share * len(times)) - 1)]


def as_json(models: Sequence[Serving], threads: int, cpus: int) -> str:
    """Return the report as JSON, with every round."""
    return json.dumps({"threads": threads, "cpus": cpus, "models": [_as_dict(model) for model in models]}, indent=1)


def _as_dict(model: Serving) -> dict[str, Any]:
    shares = (0.5, 0.99)
    return {
        "model": model.model,
        "right": model.right,
        "runs_per_s": {
            callers: {name: [served.per_s for served in rounds] for name, rounds in engines.items()}
            for callers, engines in model.served.items()
        },
        "quiet_s": {name: [quantile(times, share) for share in shares] for name, times in model.quiet.items() if times},
        "busy_s": {name: [quantile(times, share) for share in shares] for name, times in model.busy.items() if times},
        "failures": {name: result.failure for name, result in model.engines.items() if result.failure},
    }
