"""Comparisons as Markdown and JSON."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Sequence
from typing import Any

from backends.machine_limits import MachineLimits
from bench import markdown
from bench.peers import OURS
from bench.result import MEBIBYTE, PRECISIONS, RATIO, ComparisonResult, EngineResult, notes


def zoo_table(results: Sequence[ComparisonResult], machine: MachineLimits) -> str:
    """Return the whole report: the machine, a line per model, the geometric mean, and what failed."""
    peers = list(dict.fromkeys(name for result in results for name in result.engines if name != OURS))
    header = ("model", "fusion ms", *(f"{peer} ms" for peer in peers), "ratio", "spread", "compile s", "load s")
    precision = next((result.precision for result in results), "fp32")
    header = (*header, "peak MiB / ort", "error / ort" if precision == "fp32" else "error / openvino", "right")
    rows = [_model_row(result, peers) for result in results]
    mean = geometric_mean(results)
    lines = [
        f"{machine.threads} threads, {PRECISIONS[precision]}, batch 1. FMA peak {machine.peak_gflops:.0f} GFLOP/s, "
        f"memory bandwidth {machine.bandwidth_gbs:.1f} GB/s, measured in this run.",
        "",
        markdown.table(header, rows),
        "",
        f"ratio = {RATIO}; spread = its smallest and largest.",
        f"Geometric mean of the ratios: {markdown.number(mean, '.3f') or 'none'}, "
        f"{_rated(results)} of {len(results)} models; "
        f"right: {sum(result.passed for result in results)} of {len(results)}.",
        *(line for result in results for line in notes(result)),
    ]
    return "\n".join(lines) + "\n"


def _model_row(result: ComparisonResult, peers: Sequence[str]) -> markdown.Row:
    ours, ratio, verdict = result.ours, result.ratio, result.ours.verdict
    return (
        result.model,
        markdown.milliseconds(ours.latency_ms),
        *(markdown.milliseconds(result.engines[peer].latency_ms) if peer in result.engines else "" for peer in peers),
        f"{ratio.median:.2f}" if ratio else "",
        f"{ratio.low:.2f}-{ratio.high:.2f}" if ratio else "",
        markdown.number(ours.compile_s, ".1f"),
        markdown.number(ours.load_s, ".2f"),
        _memory_cell(ours, result.engines.get("onnxruntime")),
        f"{verdict.error:.1e} / {verdict.baseline_error:.1e}" if verdict else "",
        ("yes" if verdict.passed else "NO") if verdict else "failed",
    )


def _memory_cell(ours: EngineResult, baseline: EngineResult | None) -> str:
    if not ours.peak_rss:
        return ""
    share = f" ({ours.peak_rss / baseline.peak_rss:.2f}x)" if baseline and baseline.peak_rss else ""
    return f"{ours.peak_rss / MEBIBYTE:.0f}{share}"


def geometric_mean(results: Sequence[ComparisonResult]) -> float | None:
    """Return the geometric mean of the ratios of the models that fusion ran, or None if there is none."""
    ratios = [result.ratio.median for result in results if result.ratio]
    return statistics.geometric_mean(ratios) if ratios else None


def _rated(results: Sequence[ComparisonResult]) -> int:
    return sum(result.ratio is not None for result in results)


def as_json(results: Sequence[ComparisonResult], machine: MachineLimits) -> str:
    """Return the report as JSON: machine, models, geometric mean."""
    data: dict[str, Any] = {
        "machine": dataclasses.asdict(machine),
        "geometric_mean": geometric_mean(results),
        "models": [result.as_dict() for result in results],
    }
    return json.dumps(data, indent=1)
