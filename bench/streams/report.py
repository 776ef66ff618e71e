"""Tables and JSON of what streams of shapes took."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence

from bench import markdown
from bench.peers import OURS
from bench.result import MEBIBYTE, EngineResult
from bench.serving.report import quantile
from bench.streams.result import STALL, StreamResult, describe, stalls

_MOST_REASONS = 3
_LEGEND = (
    f"stalls = calls that took more than {STALL:.0f} times as long as a call of the same shape in the second pass of "
    "the engine that is fastest there; error = largest difference of a call to ONNX Runtime as a share of the output's "
    "largest value, on up to 4096 elements of each output."
)


def text(result: StreamResult) -> str:
    """Return one stream: what each engine took as a whole and by call, and ours against static forms."""
    shapes = len({tuple(shapes.items()) for shapes in result.calls})
    title = f"{result.model}, {len(result.calls)} calls of {shapes} shapes, {result.threads} threads, float32"
    whole = ("engine", "open s", "first pass s", "second pass s", "stalls", "peak MiB", "forms", "error", "right")
    each = ("engine", "pass", "median ms", "p95 ms", "largest ms")
    parts = [
        title,
        markdown.table(whole, [_engine_row(result, name) for name in result.engines]),
        markdown.table(each, list(_pass_rows(result))),
        _LEGEND,
        *_statics(result),
        "\n".join(_notes(result)),
    ]
    return "\n\n".join(part for part in parts if part)


def as_json(results: Sequence[StreamResult]) -> str:
    """Return the streams as JSON, with every call."""
    return json.dumps([result.as_dict() for result in results], indent=1)


def _engine_row(result: StreamResult, name: str) -> markdown.Row:
    engine = result.engines[name]
    if engine.failure:
        return (name, *[""] * 7, "failed")
    usual, passes = result.usual_s(), result.passes[name]
    return (
        name,
        markdown.number(engine.load_s, ".2f"),
        *(f"{sum(times):.2f}" for times in passes),
        ", ".join(str(stalls(times, usual)) for times in passes),
        markdown.number(engine.peak_rss / MEBIBYTE if engine.peak_rss else None, ".0f"),
        markdown.number(result.forms if name == OURS else None, "d"),
        markdown.number(result.errors.get(name), ".1e"),
        _right(result, name, engine),
    )


def _right(result: StreamResult, name: str, engine: EngineResult) -> str:
    return "yes" if not result.wrong[name] and engine.verdict is not None and engine.verdict.passed else "NO"


def _pass_rows(result: StreamResult) -> Iterator[markdown.Row]:
    for name, passes in result.complete():
        for number, times in enumerate(passes, 1):
            found = (statistics.median(times), quantile(times, 0.95), max(times))
            yield (name, str(number), *(markdown.milliseconds(seconds * 1e3) for seconds in found))


def _statics(result: StreamResult) -> Iterator[str]:
    if result.statics:
        rows = [
            (
                describe(result.calls[form.call]),
                markdown.milliseconds(form.stream_s * 1e3),
                f"{form.ratio:.2f}",
                markdown.milliseconds(form.repeated_s * 1e3),
                markdown.milliseconds(form.static_s * 1e3),
                f"{form.repeated_ratio:.2f}",
            )
            for form in result.statics
        ]
        yield "fusion against modules compiled for one shape of the stream, which are called with it again and again:"
        yield markdown.table(
            ("shapes", "second pass ms", "over static", "repeated ms", "static ms", "repeated over static"), rows
        )
        in_stream, repeated = (
            statistics.geometric_mean(ratios)
            for ratios in zip(*((form.ratio, form.repeated_ratio) for form in result.statics), strict=True)
        )
        yield f"Geometric means: {in_stream:.2f} in the second pass, {repeated:.2f} repeated."


def _notes(result: StreamResult) -> Iterator[str]:
    checked = "; ".join(describe(result.calls[place]) for place in result.checked)
    references = {engine.verdict.reference for engine in result.engines.values() if engine.verdict}
    if checked:
        yield f"- checked against {' and '.join(sorted(references))} as a single shape is: {checked}"
    for name, engine in result.engines.items():
        if engine.failure:
            yield f"- no numbers of {name}: {engine.failure}"
        reasons = [*result.wrong[name], *(engine.verdict.reasons if engine.verdict else ())]
        yield from (f"- {name} is not right: {reason}" for reason in reasons[:_MOST_REASONS])
        if len(reasons) > _MOST_REASONS:
            yield f"- {name} is not right in {len(reasons) - _MOST_REASONS} more outputs"
