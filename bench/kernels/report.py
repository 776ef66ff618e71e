"""The cases as a table, and their share of the roofline as a plot."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from backends.machine_limits import MachineLimits, Stream
from bench import markdown
from bench.kernels.measure import Measured
from bench.result import RATIO, notes


@dataclass(frozen=True)
class Rated:
    """A measured case against its own roofline.

    Attributes:
        intensity: Operations per byte.
        bound: As in `Floor`.
        share: Least possible time over the time our kernels took.
    """

    measured: Measured
    intensity: float
    bound: str
    share: float | None

    @property
    def ratio(self) -> float | None:
        """Latency of the best peer over ours."""
        ratio = self.measured.result.ratio
        return None if ratio is None else ratio.median


def rate(measured: Measured, machine: MachineLimits) -> Rated:
    """Return `measured` against what the machine can do, its data lying in the level that holds all of it."""
    case, seconds = measured.case, measured.kernels_s
    floor = machine.floor(case.flops, Stream(case.bytes, case.bytes))
    share = None if seconds is None else floor.seconds / seconds
    return Rated(measured, case.flops / case.bytes, floor.bound, share)


def text(cases: Sequence[Rated], machine: MachineLimits) -> str:
    """Return the whole report as Markdown."""
    levels = ", ".join(f"{level.name} {level.gbs:.0f}" for level in machine.levels)
    lines = [
        f"{machine.threads} threads, float32. FMA peak {machine.peak_gflops:.0f} GFLOP/s; GB/s: {levels}; measured in "
        "this run.",
        "",
        "Each operator or region alone, tensors in ONNX's layouts. share = least time its operations (at the FMA peak) "
        "or its bytes (at the bandwidth of the level that holds them all) allow / time of our kernels, without the "
        f"call from Python; ratio = {RATIO}.",
        "",
        markdown.table(_SUMMARY, [_summary_row(name, group) for name, group in _groups(cases)]),
        "",
        _table(cases),
        "",
        f"While {_disturbed(cases)} of them were timed, others used more than a tenth of the CPUs.",
        *(line for case in cases for line in notes(case.measured.result, load=False) if line),
    ]
    return "\n".join(lines) + "\n"


def _disturbed(cases: Sequence[Rated]) -> int:
    engines = [case.measured.result.engines.values() for case in cases]
    return sum(any(engine.disturbed for engine in found) for found in engines)


_SUMMARY = ("cases", "number", "ratio, geometric mean", "lowest", "slower than a peer", "share, median", "lowest")


def _groups(cases: Sequence[Rated]) -> Iterable[tuple[str, list[Rated]]]:
    yield "all", list(cases)
    yield "bound by compute", [case for case in cases if case.bound == "compute"]
    yield "bound by bandwidth", [case for case in cases if case.bound != "compute"]
    yield from _families(cases).items()


def _families(cases: Sequence[Rated]) -> dict[str, list[Rated]]:
    found: dict[str, list[Rated]] = {}
    for case in cases:
        found.setdefault(case.measured.case.family, []).append(case)
    return found


def _summary_row(name: str, cases: Sequence[Rated]) -> markdown.Row:
    ratios = [case.ratio for case in cases if case.ratio is not None]
    shares = [case.share for case in cases if case.share is not None]
    return (
        name,
        str(len(cases)),
        f"{statistics.geometric_mean(ratios):.2f}" if ratios else "",
        f"{min(ratios):.2f}" if ratios else "",
        f"{sum(ratio < 1 for ratio in ratios) / len(ratios):.0%}" if ratios else "",
        f"{statistics.median(shares):.0%}" if shares else "",
        f"{min(shares):.0%}" if shares else "",
    )


def _table(cases: Sequence[Rated]) -> str:
    """Return a line a case, with the latency of each engine."""
    engines = list(dict.fromkeys(name for case in cases for name in case.measured.result.engines))
    latencies = (f"{name} us" for name in engines)
    header = ("operator", "in", "MFLOP", "MB", *latencies, "kernels", "kernels us", "ratio", "bound", "share", "right")
    return markdown.table(header, [_row(case, engines) for case in cases])


def _row(rated: Rated, engines: Sequence[str]) -> markdown.Row:
    case, result = rated.measured.case, rated.measured.result
    latencies = [result.engines[name].latency_ms if name in result.engines else None for name in engines]
    return (
        case.name,
        " ".join(case.used),
        f"{case.flops / 1e6:.1f}" if case.flops else "",
        f"{case.bytes / 1e6:.2f}",
        *(markdown.number(None if latency is None else latency * 1e3, ".1f") for latency in latencies),
        str(rated.measured.kernels.calls) if rated.measured.kernels else "",
        markdown.number(None if rated.measured.kernels_s is None else rated.measured.kernels_s * 1e6, ".1f"),
        markdown.number(rated.ratio, ".2f"),
        rated.bound,
        markdown.number(rated.share, ".0%"),
        "yes" if result.passed else "NO",
    )


def as_json(cases: Sequence[Rated], machine: MachineLimits) -> str:
    """Return the report as JSON."""
    return json.dumps({"machine": asdict(machine), "cases": [_fields(case) for case in cases]}, indent=1)


def _fields(rated: Rated) -> dict[str, Any]:
    case = rated.measured.case
    return {
        "name": case.name, "family": case.family, "used": case.used, "flops": case.flops, "bytes": case.bytes,
        "bound": rated.bound, "share": rated.share, "kernels_s": rated.measured.kernels_s,
        "kernels": rated.measured.kernels.calls if rated.measured.kernels else None,
        **rated.measured.result.as_dict(),
    }  # fmt: skip


def plot(cases: Sequence[Rated], machine: MachineLimits, path: Path) -> None:
    """Write the share of the roofline by arithmetic intensity as an SVG, a colour a family."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 5))
    for family, group in _families(cases).items():
        shown = [case for case in group if case.share is not None]
        axes.scatter(
            [max(case.intensity, 0.05) for case in shown], [case.share for case in shown], s=14, label=family, alpha=0.8
        )
    axes.axvline(machine.peak_gflops / machine.bandwidth_gbs, color="grey", linewidth=0.8, linestyle="--")
    axes.axhline(1, color="grey", linewidth=0.8)
    axes.set(
        xscale="log", ylim=(0, None), xlabel="operations per byte (0.05: none)", ylabel="share of the roofline",
        title=f"{len(cases)} operators or regions, {machine.threads} threads",
    )  # fmt: skip
    axes.legend(fontsize=8)
    figure.savefig(path)
    pyplot.close(figure)
