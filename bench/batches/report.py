"""Tables of batches: which are right, and of each that was timed what the engines took."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence

from backends.machine_limits import MachineLimits
from bench import markdown, report
from bench.batches.result import BatchesResult
from bench.gate import Verdict
from bench.peers import OURS
from bench.result import RATIO, ComparisonResult, notes


def text(results: Sequence[BatchesResult], machine: MachineLimits) -> str:
    """Return all tables, the geometric means, and what failed."""
    about = (
        f"{machine.threads} threads, float32, one module for all batches. FMA peak {machine.peak_gflops:.0f} GFLOP/s, "
        f"memory bandwidth {machine.bandwidth_gbs:.1f} GB/s, measured in this run."
    )
    timed = list(_timed(results))
    every = [result.batches[size] for size in timed for result in results if size in result.batches]
    means = [f"Geometric mean of the ratios of all batches: {_mean(every)}."] if len(timed) > 1 else []
    legend = [f"ratio = {RATIO}; spread = its smallest and largest."] if timed else []
    failures = [line for result in results for line in _notes(result)]
    parts = [about, _gate(results), *(_times(results, size) for size in timed), *legend, *means, "\n".join(failures)]
    return "\n\n".join(part for part in parts if part) + "\n"


def as_json(results: Sequence[BatchesResult], machine: MachineLimits) -> str:
    """Return the results as JSON."""
    models = [json.loads(result.as_json()) for result in results]
    return json.dumps({"machine": dataclasses.asdict(machine), "models": models}, indent=1)


def _timed(results: Sequence[BatchesResult]) -> dict[int, None]:
    """Return the batches that any engine was timed with, in order."""
    return {
        size: None
        for result in results
        for size, compared in result.batches.items()
        if any(engine.rounds_ms for engine in compared.engines.values())
    }


def _gate(results: Sequence[BatchesResult]) -> str:
    """Return a line per model with the errors of ours and of ONNX Runtime for each batch."""
    sizes = list(dict.fromkeys(size for result in results for size in result.batches))
    rows = [
        (
            result.model,
            markdown.number(result.forms, "d"),
            *(_errors(result.batches[size].ours.verdict) if size in result.batches else "" for size in sizes),
            "yes" if result.passed else "NO",
        )
        for result in results
    ]
    table = markdown.table(("model", "forms", *(f"batch {size}: error / ort" for size in sizes), "right"), rows)
    return f"{table}\n\nRight in every batch: {sum(result.passed for result in results)} of {len(results)} models."


def _errors(verdict: Verdict | None) -> str:
    if verdict is None:
        return "failed"
    errors = f"{verdict.error:.1e} / {verdict.baseline_error:.1e}"
    return errors if verdict.passed else f"{errors} NO"


def _times(results: Sequence[BatchesResult], size: int) -> str:
    """Return a line per model with what each engine takes for one batch."""
    found = {result.model: result.batches[size] for result in results if size in result.batches}
    peers = list(dict.fromkeys(name for compared in found.values() for name in compared.engines if name != OURS))
    header = (f"batch {size}", "fusion ms", *(f"{peer} ms" for peer in peers), "ratio", "spread")
    rows = [(model, *_row(compared, peers)) for model, compared in found.items()]
    return f"{markdown.table(header, rows)}\n\nGeometric mean of the ratios: {_mean(list(found.values()))}."


def _row(compared: ComparisonResult, peers: Sequence[str]) -> markdown.Row:
    ratio = compared.ratio
    engines = [compared.ours, *(compared.engines[peer] for peer in peers)]
    return (
        *(markdown.milliseconds(engine.latency_ms) for engine in engines),
        f"{ratio.median:.2f}" if ratio else "",
        f"{ratio.low:.2f}-{ratio.high:.2f}" if ratio else "",
    )


def _mean(compared: Sequence[ComparisonResult]) -> str:
    rated = sum(each.ratio is not None for each in compared)
    return f"{markdown.number(report.geometric_mean(compared), '.3f') or 'none'}, {rated} of {len(compared)}"


def _notes(result: BatchesResult) -> Iterator[str]:
    """Yield what a reader must know, with all batches of which it holds."""
    told: dict[str, list[str]] = defaultdict(list)
    for size, compared in result.batches.items():
        begins = f"- {compared.model}: "
        for line in filter(None, notes(compared)):
            told[line.removeprefix(begins)].append(str(size))
    for line, sizes in told.items():
        yield f"- {result.model}, batch {', '.join(sizes)}: {line}"
    if result.forms is not None and result.forms > 1:
        yield f"- {result.model}: {result.forms} forms of it, as it has none for all batches; explain() says why"
