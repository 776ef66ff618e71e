"""What a comparison found, as data; `bench.report` prints it."""

from __future__ import annotations

import dataclasses
import statistics
from dataclasses import dataclass, field
from typing import Any

from bench import markdown
from bench.gate import Verdict
from bench.peers import OURS

MEBIBYTE = 1 << 20
# What the tables call the ratio; the latencies they print are medians over the rounds, each by itself.
RATIO = "median over the rounds of (latency of the faster peer / latency of fusion), not the quotient of the columns"
PRECISIONS = {"fp32": "float32", "bf16": "bfloat16 (fusion, openvino)"}
_FASTER = "fusion is faster by = median over the rounds of (latency of the engine / latency of fusion)"
# Share of the CPUs that others may use before the report speaks of it; /proc/stat counts in steps of 10 ms.
_QUIET = 0.1


@dataclass
class EngineResult:
    """One engine on one model.

    Attributes:
        rounds_ms: Median latency of each round, in milliseconds.
        others: Share of the machine's CPUs that others used during each round.
        compile_s: Seconds to compile ahead of time; for engines that compile while they load, the load time.
        load_s: Seconds from the file to the first input accepted, the library's import not counted.
        saved: False where the module could not be saved, so that loading it was compiling it once more.
        peak_rss: Peak resident bytes of a process that only loads and runs the model.
        base_rss: Of these, what was resident once the library was imported.
        idle_share: Largest share of one CPU the engine used while it should have slept.
        verdict: What the float64 gate says; None where the engine did not run.
        failure: Why the engine has no numbers, or empty.
    """

    rounds_ms: list[float] = field(default_factory=list)
    others: list[float] = field(default_factory=list)
    compile_s: float | None = None
    load_s: float | None = None
    saved: bool = True
    peak_rss: int | None = None
    base_rss: int | None = None
    idle_share: float = 0.0
    verdict: Verdict | None = None
    failure: str = ""

    @property
    def disturbed(self) -> bool:
        """Whether others used so much of the CPUs that the times say little."""
        return bool(self.others) and statistics.median(self.others) > _QUIET

    @property
    def latency_ms(self) -> float | None:
        """The median of the rounds' medians."""
        return statistics.median(self.rounds_ms) if self.rounds_ms else None


@dataclass(frozen=True)
class Ratio:
    """A peer's latency over ours: above 1, fusion is faster.

    Attributes:
        median: Over the rounds, of the ratio within a round; not the ratio of two medians over the rounds.
        low, high: Their smallest and largest.
    """

    median: float
    low: float
    high: float


@dataclass
class ComparisonResult:
    """All engines on one model, measured in the same run.

    Attributes:
        model: Name in the zoo, or file name.
        shapes: Input name to shape.
        threads: Threads each engine had.
        engines: Engine name to what it did; ours is "fusion".
        precision: Of the engines that have a choice: "fp32", or "bf16" for fusion and OpenVINO.
    """

    model: str
    shapes: dict[str, tuple[int, ...]]
    threads: int
    engines: dict[str, EngineResult] = field(default_factory=dict)
    precision: str = "fp32"

    @property
    def ours(self) -> EngineResult:
        """What fusion did."""
        return self.engines[OURS]

    @property
    def ratios(self) -> dict[str, Ratio]:
        """Peer name to its latency over ours, for the peers that ran."""
        ours = self.ours.rounds_ms
        pairs = {
            name: [theirs / own for theirs, own in zip(result.rounds_ms, ours, strict=True)]
            for name, result in self.engines.items()
            if name != OURS and ours and len(result.rounds_ms) == len(ours)
        }
        return {name: Ratio(statistics.median(values), min(values), max(values)) for name, values in pairs.items()}

    @property
    def ratio(self) -> Ratio | None:
        """The ratio to the best peer: the one fusion does worst against."""
        return min(self.ratios.values(), key=lambda ratio: ratio.median, default=None)

    @property
    def passed(self) -> bool:
        """Whether fusion ran and its outputs passed the gate."""
        return self.ours.verdict is not None and self.ours.verdict.passed

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON: every field, with the medians and ratios worked out."""
        data = dataclasses.asdict(self)
        for name, result in self.engines.items():
            data["engines"][name]["latency_ms"] = result.latency_ms
        data["ratios"] = {name: dataclasses.asdict(ratio) for name, ratio in self.ratios.items()}
        data["ratio"] = dataclasses.asdict(self.ratio) if self.ratio else None
        data["passed"] = self.passed
        return data

    def table(self) -> str:
        """Return the comparison as a Markdown table, one engine per line."""
        return _engines_table(self)


def _engines_table(result: ComparisonResult) -> str:
    """Return one comparison: a line per engine, the reasons of failures below."""
    header = ("engine", "ms", "fusion is faster by", "spread", "compile s", "load s", "peak MiB", "error", "right")
    rows = [_engine_row(result, name) for name in result.engines]
    title = f"{result.model}, {result.threads} threads, {PRECISIONS[result.precision]}"
    legend = f"{_FASTER}; spread = its smallest and largest."
    return "\n".join([title, "", markdown.table(header, rows), "", legend, *notes(result)])


def _engine_row(result: ComparisonResult, name: str) -> markdown.Row:
    engine, ratio = result.engines[name], result.ratios.get(name)
    verdict = engine.verdict
    return (
        name,
        markdown.milliseconds(engine.latency_ms),
        f"{ratio.median:.2f}x" if ratio else "",
        f"{ratio.low:.2f}-{ratio.high:.2f}" if ratio else "",
        markdown.number(engine.compile_s, ".1f"),
        markdown.number(engine.load_s, ".2f"),
        markdown.number(engine.peak_rss / MEBIBYTE if engine.peak_rss else None, ".0f"),
        f"{verdict.error:.1e}" if verdict else "",
        ("yes" if verdict.passed else "NO") if verdict else "",
    )


def notes(result: ComparisonResult, load: bool = True) -> list[str]:
    """Return what a reader of the numbers must know: failures, wrong outputs, a reference that is not float64, and,
    with `load`, what others did to the CPUs meanwhile."""
    found = []
    for name, engine in result.engines.items():
        if engine.failure:
            found.append(f"- {result.model}: no numbers of {name}: {engine.failure}")
        if not engine.saved:
            found.append(f"- {result.model}: there is no linker to save with: load s and peak MiB include compiling")
        if engine.disturbed and load:
            share = statistics.median(engine.others)
            found.append(f"- {result.model}: others used {share:.0%} of the CPUs while {name} was timed")
        if engine.verdict and engine.verdict.reference != "float64":
            found.append(f"- {result.model}: {name} was checked against {engine.verdict.reference}, not float64")
        if engine.verdict:
            found += [f"- {result.model}: {name} is not right: {reason}" for reason in engine.verdict.reasons]
    return ["", *found] if found else []
