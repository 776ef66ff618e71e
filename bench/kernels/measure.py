"""Times each case in every engine: one process an engine for all cases, rounds interleaved as `bench.protocol` does."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx

import bench.peers
from bench import inputs, protocol
from bench.kernels.case import Case
from bench.peers import OURS
from bench.peers.engine import Job
from bench.remote import EngineError, Worker
from bench.result import ComparisonResult, EngineResult

# A worker that failed is ended and started again for the next case.
_Workers = dict[str, Worker]


@dataclass(frozen=True)
class Measured:
    """A case and what the engines did with it."""

    case: Case
    result: ComparisonResult


def measure(cases: Sequence[Case], plan: protocol.Plan) -> Iterator[Measured]:
    """Yield each case once it has been compiled, checked by the float64 gate and timed."""
    engines = [OURS, *plan.peers]
    with TemporaryDirectory(prefix="fusion-kernels-") as scratch, contextlib.ExitStack() as stack:
        workers: _Workers = {}
        for case in cases:
            for engine in engines:
                if engine not in workers:
                    workers[engine] = stack.enter_context(Worker(engine, plan.threads))
            yield Measured(case, _compare(case, plan, workers, Path(scratch)))


def _compare(case: Case, plan: protocol.Plan, workers: _Workers, folder: Path) -> ComparisonResult:
    path = folder / "case.onnx"
    onnx.save(case.model, path)
    job = Job(path, {spec.name: spec.shape for spec in case.inputs}, plan.threads)
    result = ComparisonResult(case.name, dict(job.shapes), plan.threads, {name: EngineResult() for name in workers})
    for engine, worker in list(workers.items()):
        with protocol.noting(result.engines[engine]):
            try:
                if bench.peers.compiles_ahead(engine):
                    result.engines[engine].compile_s = worker.ask(plan.build_s, "build", job, folder)
                result.engines[engine].load_s = worker.ask(plan.load_s, "load", job, folder)
            except EngineError:
                workers.pop(engine).close()
                raise
    loaded = {name: worker for name, worker in workers.items() if not result.engines[name].failure}
    checked = {seed: inputs.draw(case.inputs, seed) for seed in range(plan.checks)}
    protocol.check(job, plan, loaded, result.engines, checked)
    protocol.time_rounds(plan, loaded, result.engines, lambda seed: inputs.draw(case.inputs, seed))
    return result
