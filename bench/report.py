"""Comparisons as Markdown and JSON."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bench.peers import OURS
from bench.result import ComparisonResult, EngineResult

if TYPE_CHECKING:
    from bench.roofline import Roofline

_MEBIBYTE = 1 << 20
Row = Sequence[str]


def markdown_table(header: Row, rows: Sequence[Row]) -> str:
    """Return a Markdown table whose columns are as wide as their longest cell."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    rule = ["-" * width for width in widths]
    lines = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in (header, rule, *rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def engines_table(result: ComparisonResult) -> str:
    """Return one comparison: a line per engine, the reasons of failures below."""
    header = ("engine", "ms", "fusion is faster by", "spread", "compile s", "load s", "peak MiB", "error", "right")
    rows = [_engine_row(result, name) for name in result.engines]
    title = f"{result.model}, {result.threads} threads, float32"
    return "\n".join([title, "", markdown_table(header, rows), *_notes(result)])


def _engine_row(result: ComparisonResult, name: str) -> Row:
    engine, ratio = result.engines[name], result.ratios.get(name)
    verdict = engine.verdict
    return (
        name,
        _number(engine.latency_ms, ".2f"),
        f"{ratio.median:.2f}x" if ratio else "",
        f"{ratio.low:.2f}-{ratio.high:.2f}" if ratio else "",
        _number(engine.compile_s, ".1f"),
        _number(engine.load_s, ".2f"),
        _number(engine.peak_rss and engine.peak_rss / _MEBIBYTE, ".0f"),
        f"{verdict.error:.1e}" if verdict else "",
        ("yes" if verdict.passed else "NO") if verdict else "",
    )


def zoo_table(results: Sequence[ComparisonResult], machine: Roofline) -> str:
    """Return the whole report: the machine, a line per model, the geometric mean, and what failed."""
    peers = list(dict.fromkeys(name for result in results for name in result.engines if name != OURS))
    header = ("model", "fusion ms", *(f"{peer} ms" for peer in peers), "ratio", "spread", "compile s", "load s")
    header = (*header, "peak MiB / ort", "error / ort", "right")
    rows = [_model_row(result, peers) for result in results]
    mean = geometric_mean(results)
    lines = [
        f"{machine.threads} threads, float32, batch as shown by the shapes. FMA peak {machine.gflops:.0f} GFLOP/s, "
        f"copy bandwidth {machine.gbps:.1f} GB/s, measured in this run.",
        "",
        markdown_table(header, rows),
        "",
        "ratio = latency of the best peer / latency of fusion, median over the rounds; spread = smallest and largest round.",
        f"Geometric mean of the ratios: {_number(mean, '.3f') or 'none'} over {_rated(results)} of {len(results)} models; "
        f"right: {sum(result.passed for result in results)} of {len(results)}.",
        *(note for result in results for note in _notes(result)),
    ]
    return "\n".join(lines) + "\n"


def _model_row(result: ComparisonResult, peers: Sequence[str]) -> Row:
    ours, ratio, verdict = result.ours, result.ratio, result.ours.verdict
    return (
        result.model,
        _number(ours.latency_ms, ".2f"),
        *(_number(result.engines[peer].latency_ms, ".2f") if peer in result.engines else "" for peer in peers),
        f"{ratio.median:.2f}" if ratio else "",
        f"{ratio.low:.2f}-{ratio.high:.2f}" if ratio else "",
        _number(ours.compile_s, ".1f"),
        _number(ours.load_s, ".2f"),
        _memory_cell(ours, result.engines.get("onnxruntime")),
        f"{verdict.error:.1e} / {verdict.baseline_error:.1e}" if verdict else "",
        ("yes" if verdict.passed else "NO") if verdict else "failed",
    )


def _memory_cell(ours: EngineResult, baseline: EngineResult | None) -> str:
    if not ours.peak_rss:
        return ""
    share = f" ({ours.peak_rss / baseline.peak_rss:.2f}x)" if baseline and baseline.peak_rss else ""
    return f"{ours.peak_rss / _MEBIBYTE:.0f}{share}"


def geometric_mean(results: Sequence[ComparisonResult]) -> float | None:
    """Return the geometric mean of the ratios of the models that fusion ran, or None if there is none."""
    ratios = [result.ratio.median for result in results if result.ratio]
    return statistics.geometric_mean(ratios) if ratios else None


def _rated(results: Sequence[ComparisonResult]) -> int:
    return sum(result.ratio is not None for result in results)


def _notes(result: ComparisonResult) -> list[str]:
    notes = []
    for name, engine in result.engines.items():
        if engine.failure:
            notes.append(f"- {result.model}: no numbers of {name}: {engine.failure}")
        if engine.verdict and engine.verdict.reference != "float64":
            notes.append(f"- {result.model}: {name} was checked against {engine.verdict.reference}, not float64")
        if engine.verdict:
            notes += [f"- {result.model}: {name} is not right: {reason}" for reason in engine.verdict.reasons]
    return ["", *notes] if notes else []


def as_json(results: Sequence[ComparisonResult], machine: Roofline) -> str:
    """Return the report as JSON: machine, models, geometric mean."""
    data: dict[str, Any] = {
        "machine": machine.as_dict(),
        "geometric_mean": geometric_mean(results),
        "models": [result.as_dict() for result in results],
    }
    return json.dumps(data, indent=1)


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
