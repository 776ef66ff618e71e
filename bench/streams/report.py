"""Tables and JSON of what streams of shapes took."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from bench import markdown
from bench.peers import OURS
from bench.result import MEBIBYTE, EngineResult
from bench.serving.report import quantile
from bench.streams.result import STALL, AgainstStatic, StreamResult, describe, stalls

_MOST_REASONS = 3
_LEGEND = (
    f"whole = opening and the first pass, from a cold start; stalls = calls that took more than {STALL:.0f} times as "
    "long as a call of the same shape in the last pass of the engine that is fastest there; error = largest difference "
    "of a call to ONNX Runtime as a share of the output's largest value, on up to 4096 elements of each output."
)


def text(result: StreamResult) -> str:
    """Return one stream: what each engine took as a whole and by call, and ours against static forms."""
    shapes = len({tuple(shapes.items()) for shapes in result.calls})
    title = f"{result.model}, {len(result.calls)} calls of {shapes} shapes, {result.threads} threads, float32"
    passes = [f"pass {number + 1} s" for number in range(result.most_passes)]
    whole = ("engine", "open s", *passes, "whole s", "stalls", "peak MiB", "forms", "error", "right")
    each = ("engine", "pass", "median ms", "p95 ms", "largest ms")
    parts = [
        title,
        markdown.table(whole, [_engine_row(result, name) for name in result.engines]),
        markdown.table(each, list(_pass_rows(result))),
        _LEGEND,
        *_against(result),
        "\n".join(_notes(result)),
    ]
    return "\n\n".join(part for part in parts if part)


def _engine_row(result: StreamResult, name: str) -> markdown.Row:
    engine = result.engines[name]
    if engine.failure:
        return (name, *[""] * (6 + result.most_passes), "failed")
    usual, passes = result.usual_s(), result.passes[name]
    return (
        name,
        markdown.number(engine.load_s, ".2f"),
        *(f"{sum(times):.2f}" for times in passes),
        markdown.number(result.whole_s(name), ".2f"),
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


def _against(result: StreamResult) -> Iterator[str]:
    against = result.against
    if against is None:
        return
    yield "fusion's form for all sizes against modules compiled for one shape of the stream, calls in turns:"
    rows = [
        (
            describe(result.calls[form.call]),
            *(markdown.milliseconds(seconds * 1e3) for seconds in (form.open_s, form.static_s)),
            f"{form.ratio:.2f}",
        )
        for form in against.forms
    ]
    yield markdown.table(("shapes", "for all sizes ms", "static ms", "ratio"), rows)
    ratios = [form.ratio for form in against.forms]
    yield (
        f"Geometric mean {statistics.geometric_mean(ratios):.3f}, 95th percentile {quantile(ratios, 0.95):.2f}, "
        f"worst {max(ratios):.2f}."
    )
    yield f"What it costs beside a static form for {describe(result.calls[against.largest])}, each loaded and called:"
    yield markdown.table(("", "for all sizes", "static", "ratio"), list(_cost_rows(against)))


def _cost_rows(against: AgainstStatic) -> Iterator[markdown.Row]:
    opened, static = against.opened, against.static
    kinds = (
        ("compiled in s", opened.compile_s, static.compile_s),
        ("memory of that, MiB", opened.compiling_bytes / MEBIBYTE, static.compiling_bytes / MEBIBYTE),
        ("memory of running, MiB", opened.running_bytes / MEBIBYTE, static.running_bytes / MEBIBYTE),
        ("file, MiB", (opened.file_bytes or 0) / MEBIBYTE, (static.file_bytes or 0) / MEBIBYTE),
    )
    for name, ours, other in kinds:
        if other:
            yield (name, f"{ours:.1f}", f"{other:.1f}", f"{ours / other:.2f}")


def _notes(result: StreamResult) -> Iterator[str]:
    checked = "; ".join(describe(result.calls[place]) for place in result.checked)
    references = {engine.verdict.reference for engine in result.engines.values() if engine.verdict}
    if checked:
        yield f"- checked against {' and '.join(sorted(references))} as a single shape is: {checked}"
    yield from _compiling(result)
    if result.no_statics:
        yield f"- no comparison with static forms: {result.no_statics}"
    for name, engine in result.engines.items():
        if engine.failure:
            yield f"- no numbers of {name}: {engine.failure}"
        reasons = [*result.wrong[name], *(engine.verdict.reasons if engine.verdict else ())]
        yield from (f"- {name} is not right: {reason}" for reason in reasons[:_MOST_REASONS])
        if len(reasons) > _MOST_REASONS:
            yield f"- {name} is not right in {len(reasons) - _MOST_REASONS} more outputs"


def _compiling(result: StreamResult) -> Iterator[str]:
    """Say in which calls ours compiled."""
    took = [seconds for times in result.passes[OURS] for seconds in times]
    for call in result.compiling[:_MOST_REASONS] if took else ():
        shapes = describe(result.calls[call % len(result.calls)])
        yield f"- fusion compiled in call {call + 1} ({shapes}), which took {took[call]:.2f} s"
    if len(result.compiling) > _MOST_REASONS:
        yield f"- fusion compiled in {len(result.compiling) - _MOST_REASONS} more calls"
