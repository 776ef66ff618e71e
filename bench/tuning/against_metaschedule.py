"""`python -m bench.tuning.against_metaschedule`: large drawn operators tuned by MetaSchedule and compiled by us, with
nothing measured and with points measured, each in a process of its own, then timed in interleaved rounds: how long each
took to be as fast as MetaSchedule is in the end, and how fast each is then."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import fusion
from bench import command, inputs, markdown, protocol
from bench.peers import OURS
from bench.peers.engine import Job
from bench.peers.metaschedule import TRIALS
from bench.protocol import ComparisonPlan
from bench.remote import EngineError, Worker
from bench.result import ComparisonResult, EngineResult, notes
from tuning.workloads import Workload, draw_workloads

THEIRS, MEASURED = "metaschedule", "fusion, measured"
_SEARCH_S = 3600.0
_LEAST_FLOPS = 2e7
"""Of an operator, which takes 0.1 ms or more: a call of TVM's virtual machine copies its inputs (8 us each)."""
_DRAWN = 8
"""Operators of any size for each that is large enough."""


def main() -> int:
    """Return 0 if all were right, 2 without an engine that is needed, else 1."""
    options = _parser().parse_args()
    plan = ComparisonPlan(options.threads, options.rounds, options.seconds, checks=1, load_s=_SEARCH_S)
    found: list[ComparisonResult] = []
    drawn = draw_workloads(options.seed, _DRAWN * options.count)
    large = [workload for workload in drawn if workload.flops >= _LEAST_FLOPS][: options.count]
    for number, workload in enumerate(large, 1):
        try:
            found.append(compare(workload, plan))
        except (EngineError, fusion.FusionError) as error:
            print(f"{workload.name}: {error}", file=sys.stderr)
            return 2
        print(f"{number}/{len(large)} {' '.join(_row(found[-1]))}", file=sys.stderr, flush=True)
    command.write(options.out, "metaschedule", text(found), json.dumps([each.as_dict() for each in found], indent=1))
    return 0 if all(each.passed for each in found) else 1


def compare(workload: Workload, plan: ComparisonPlan) -> ComparisonResult:
    """Return what each engine makes of a workload.

    Raises:
        EngineError: ONNX Runtime, which all are checked against, failed.
        FusionError: The workload cannot be written as ONNX.
    """
    with TemporaryDirectory(prefix="fusion-metaschedule-") as folder, contextlib.ExitStack() as stack:
        path = Path(folder) / "workload.onnx"
        fusion.convert(workload.module(), path)
        specs = inputs.read_specs(path, {})
        job = Job(path, {spec.name: spec.shape for spec in specs}, plan.threads)
        jobs = {OURS: job, MEASURED: replace(job, effort="balanced"), THEIRS: job, protocol.BASELINE: job}
        result = ComparisonResult(workload.name, dict(job.shapes), plan.threads)
        result.engines = {name: EngineResult() for name in jobs}
        workers: dict[str, Worker] = {}
        for place, (name, each) in enumerate(jobs.items()):
            own = Path(folder) / str(place)
            own.mkdir()
            with protocol.noting(result.engines[name]):
                workers[name] = protocol.start(
                    OURS if name == MEASURED else name, each,
                    plan=plan, folder=own, result=result.engines[name], stack=stack,
                )  # fmt: skip
        protocol.check(job, plan, workers, result.engines, {0: inputs.draw(specs, 0)})
        protocol.time_rounds(plan, workers, result.engines, lambda seed: inputs.draw(specs, seed))
    return result


def seconds_to_reach(result: ComparisonResult) -> float | None:
    """Return what the first of our two compilations takes that is as fast as MetaSchedule; None where neither is, or
    MetaSchedule has no numbers."""
    theirs = result.engines[THEIRS].latency_ms
    for name in (OURS, MEASURED):
        ours = result.engines[name]
        if theirs and ours.latency_ms and ours.latency_ms <= theirs:
            return ours.compile_s
    return None


def text(found: Sequence[ComparisonResult]) -> str:
    """Return the report as Markdown."""
    header = (
        "workload", "MetaSchedule ms", "its s", "fusion ms", "its s", "fusion, measured ms", "its s",
        "ONNX Runtime ms", "as fast after s", "its share of MetaSchedule's", "measured is faster by", "right",
    )  # fmt: skip
    return "\n".join([
        f"MetaSchedule measures {TRIALS} trials. Medians over the rounds.",
        "",
        markdown.table(header, [_row(result) for result in found]),
        *(note for result in found for note in notes(result)),
        "",
    ])  # fmt: skip


def _row(result: ComparisonResult) -> markdown.Row:
    engines = result.engines
    reached, search_s = seconds_to_reach(result), engines[THEIRS].compile_s
    ours, theirs = engines[MEASURED].latency_ms, engines[THEIRS].latency_ms
    timed = [
        cell for name in (THEIRS, OURS, MEASURED)
        for cell in (markdown.number(engines[name].latency_ms, ".4f"), markdown.number(engines[name].compile_s, ".1f"))
    ]  # fmt: skip
    return (
        result.model, *timed, markdown.number(engines[protocol.BASELINE].latency_ms, ".4f"),
        markdown.number(reached, ".1f"),
        f"1/{search_s / reached:.0f}" if search_s and reached else "",
        f"{theirs / ours:.2f}" if ours and theirs else "",
        "yes" if result.passed else "NO",
    )  # fmt: skip


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.tuning.against_metaschedule", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of the operators that are drawn")
    parser.add_argument("--count", type=int, default=10, help="operators")
    command.add_timing(parser, 0.1, "engine")
    return parser


if __name__ == "__main__":
    command.run(main)
