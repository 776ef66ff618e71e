"""`python -m bench.tuning.related`: a network compiled with nothing measured, with what tuning another one of its kind
measured, and with what tuning it alone did, each in a process of its own, timed in interleaved rounds."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import fusion
from bench import command, inputs, markdown, protocol
from bench.peers import OURS
from bench.peers.engine import Compiled, Job
from bench.protocol import ComparisonPlan
from bench.remote import Worker
from bench.result import ComparisonResult, EngineResult, notes
from bench.zoo import make

OTHER_S, OWN = "fusion, records of the other", "fusion, tuned alone"


@dataclass(frozen=True)
class Related:
    """What became of a network.

    Attributes:
        result: The times of its three modules, and whether they are right.
        said: What tuning the other network and tuning it said, a line each.
    """

    result: ComparisonResult
    said: tuple[str, ...]

    @property
    def is_right(self) -> bool:
        """Whether all modules passed the gate."""
        return all(each.verdict is not None and each.verdict.passed for each in self.result.engines.values())

    def gain(self, name: str) -> float:
        """Return by which share of the default's time a module is faster, in the median of the rounds."""
        default, mine = (self.result.engines[each].rounds_ms for each in (OURS, name))
        return median([1 - its / before for before, its in zip(default, mine, strict=True)])


def main() -> int:
    """Return 0 if all were right, else 1."""
    options = _parser().parse_args()
    plan = ComparisonPlan(options.threads, options.rounds, options.seconds, checks=1)
    found = compare(options.first, options.then, options.budget, plan)
    command.write(options.out, "related", text(found), json.dumps(found.result.as_dict(), indent=1))
    return 0 if found.is_right else 1


def compare(first: str, then: str, budget: str, plan: ComparisonPlan) -> Related:
    """Return what a network of the zoo takes, with the records of another one and with its own."""
    model = make(then)
    job = Job(model.path, {spec.name: spec.shape for spec in model.specs}, plan.threads)
    result = ComparisonResult(then, dict(job.shapes), plan.threads)
    with TemporaryDirectory(prefix="fusion-related-") as name, contextlib.ExitStack() as stack:
        folder, said = Path(name), list[str]()
        databases: dict[str, Path | bool] = {OURS: False, OTHER_S: folder / "first", OWN: folder / "then"}
        for path, database in ((make(first).path, OTHER_S), (model.path, OWN)):
            tuned = fusion.tune(str(path), threads=plan.threads, budget=budget, database=databases[database])
            said += tuned.lines()
            print("\n".join(tuned.lines()), file=sys.stderr, flush=True)
        jobs = {each: replace(job, compiled=_compiled(job, where, folder)) for each, where in databases.items()}
        result.engines = {each: EngineResult() for each in (*jobs, protocol.BASELINE)}
        workers = _workers({**jobs, protocol.BASELINE: job}, plan, folder, result, stack)
        protocol.check(job, plan, workers, result.engines, {0: model.inputs(0)})
        protocol.time_rounds(plan, workers, result.engines, lambda seed: inputs.draw(model.specs, seed))
    return Related(result, tuple(said))


def text(found: Related) -> str:
    """Return the report as Markdown."""
    rows = [
        [each, markdown.number(its.latency_ms, ".3f"), f"{min(its.rounds_ms):.3f} to {max(its.rounds_ms):.3f}",
         f"{found.gain(each):.1%}"]
        for each, its in found.result.engines.items() if its.rounds_ms
    ]  # fmt: skip
    return "\n".join([
        f"{found.result.model}: medians over the rounds.",
        "",
        markdown.table(["module", "ms", "rounds", "faster by"], rows),
        *(f"- {line}" for line in found.said),
        *notes(found.result),
        "",
    ])  # fmt: skip


def _compiled(job: Job, database: Path | bool, folder: Path) -> Compiled:
    """Return a module compiled with what a database has, measuring nothing, and saved."""
    began = time.perf_counter()
    compiled = fusion.compile(str(job.path), threads=job.threads, database=database, cache=False)
    seconds = time.perf_counter() - began
    path = folder / f"{Path(str(database)).name}.fusion"
    compiled.save(str(path))
    return Compiled(path, seconds)


def _workers(
    jobs: Mapping[str, Job], plan: ComparisonPlan, folder: Path, result: ComparisonResult, stack: contextlib.ExitStack
) -> dict[str, Worker]:
    workers: dict[str, Worker] = {}
    for name, job in jobs.items():
        engine = name if name == protocol.BASELINE else OURS
        workers[name] = protocol.start(
            engine, job, plan=plan, folder=folder, result=result.engines[name], stack=stack
        )  # fmt: skip
    return workers


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.tuning.related", description=__doc__)
    parser.add_argument("--first", default="resnet50", help="whose records the other is compiled with")
    parser.add_argument("--then", default="resnet101")
    parser.add_argument("--budget", default="100s", help="for tuning each")
    command.add_timing(parser, 0.5, "engine")
    return parser


if __name__ == "__main__":
    command.run(main)
