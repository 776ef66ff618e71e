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
from bench.peers.engine import Job, Kernels
from bench.remote import EngineError, Worker
from bench.result import ComparisonResult, EngineResult

# Engine name to its process.
_Workers = dict[str, Worker]


@dataclass(frozen=True)
class Measured:
    """A case and what the engines did with it.

    Attributes:
        kernels: Our kernels of a run; None where ours did not run.
    """

    case: Case
    result: ComparisonResult
    kernels: Kernels | None

    @property
    def kernels_s(self) -> float | None:
        """Seconds our kernels take in a run, without the call around them."""
        return None if self.kernels is None else self.kernels.seconds


def measure(cases: Sequence[Case], plan: protocol.ComparisonPlan) -> Iterator[Measured]:
    """Yield each case once it has been compiled, checked by the float64 gate and timed.

    An engine that fails has its reason in the result of that case, and gets a new process for the next one.
    """
    engines = dict.fromkeys([OURS, *plan.peers, protocol.BASELINE])
    with TemporaryDirectory(prefix="fusion-kernels-") as scratch, contextlib.ExitStack() as stack:
        workers: _Workers = {}
        for case in cases:
            for engine in engines:
                if engine not in workers:
                    workers[engine] = stack.enter_context(Worker(engine, plan.threads))
            yield _compare(case, plan, workers, Path(scratch))


def _compare(case: Case, plan: protocol.ComparisonPlan, workers: _Workers, folder: Path) -> Measured:
    """Return what the engines did with `case`, or why they did nothing; take those that failed out of `workers`."""
    path = folder / "case.onnx"
    onnx.save(case.model, path)
    job = Job(path, {spec.name: spec.shape for spec in case.inputs}, plan.threads)
    wanted = dict.fromkeys([OURS, *plan.peers])
    results = {engine: EngineResult() for engine in workers}
    for engine, worker in workers.items():
        with protocol.noting(results[engine]):
            if bench.peers.compiles_ahead(engine):
                results[engine].compile_s, results[engine].saved = worker.ask(plan.build_s, "build", job, folder)
            results[engine].load_s = worker.ask(plan.load_s, "load", job, folder)
    _check(job, plan, _running(workers, results), results, case)
    timed = {engine: worker for engine, worker in _running(workers, results).items() if engine in wanted}
    protocol.time_rounds(plan, timed, results, lambda seed: inputs.draw(case.inputs, seed))
    kernels = _time_kernels(case, plan, timed, results)
    for engine in workers.keys() - _running(workers, results).keys():
        workers.pop(engine).close()
    compared = {engine: results[engine] for engine in wanted}
    return Measured(case, ComparisonResult(case.name, dict(job.shapes), plan.threads, compared), kernels)


def _time_kernels(
    case: Case, plan: protocol.ComparisonPlan, timed: _Workers, results: dict[str, EngineResult]
) -> Kernels | None:
    if OURS not in timed or results[OURS].failure:
        return None
    with protocol.noting(results[OURS]):
        kernels: Kernels = timed[OURS].ask(plan.run_s, "kernels", inputs.draw(case.inputs, 0), plan.round_s)
        return kernels
    return None


def _check(
    job: Job, plan: protocol.ComparisonPlan, running: _Workers, results: dict[str, EngineResult], case: Case
) -> None:
    """Put the outputs through the gate. Without those of the baseline nothing is checked, and so nothing is timed."""
    checked = {seed: inputs.draw(case.inputs, seed) for seed in range(plan.checks)}
    try:
        protocol.check(job, plan, running, results, checked)
    except EngineError as error:
        for engine in running:
            results[engine].failure = results[engine].failure or str(error)


def _running(workers: _Workers, results: dict[str, EngineResult]) -> _Workers:
    return {engine: worker for engine, worker in workers.items() if not results[engine].failure}
