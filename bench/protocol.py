"""The comparison: every engine in its own process, the same threads and inputs, rounds interleaved A B A B.

Each round gives one median per engine and one ratio per peer, so that a change of the machine's speed between rounds
cancels. Before an engine is timed, all others have put their threads to sleep.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import bench.peers
from bench import gate, inputs
from bench.peers import OURS, STANDARD
from bench.peers.engine import Arrays, Job
from bench.reference import evaluate
from bench.reference.evaluate import NoReferenceError
from bench.remote import EngineError, Worker
from bench.result import ComparisonResult, EngineResult
from fusion.system.cpus import default_threads

Evaluate = Callable[[Arrays], Arrays]
BASELINE = "onnxruntime"
# By precision: the engine whose error measures what is allowed.
_MEASURES = {"fp32": BASELINE, "bf16": "openvino"}
# From this error of all peers on, the float64 evaluation is taken to be the one that is wrong. (Of products of bytes on
# x86 without VNNI it is ONNX Runtime alone, whose sums saturate.)
_UNBELIEVABLE = 1e-2
_BLAS_SPINS_S = 0.05


@dataclass(frozen=True)
class ComparisonPlan:
    """How a comparison is run.

    Attributes:
        threads: For every engine.
        rounds: How often each engine is timed.
        round_s: Seconds per round and engine.
        peers: Engines to compare with, besides ours.
        checks: How many inputs go through the gate.
        build_s, load_s, run_s: Deadlines in seconds for compiling, loading, and one round or one call.
    """

    threads: int
    rounds: int = 9
    round_s: float = 0.25
    peers: tuple[str, ...] = STANDARD
    checks: int = 2
    build_s: float = 900.0
    load_s: float = 300.0
    run_s: float = 60.0


def compare_model(
    path: str | os.PathLike[str],
    shapes: Mapping[str, Sequence[int]] | None = None,
    threads: int | None = None,
    rounds: int = ComparisonPlan.rounds,
    peers: Sequence[str] | None = None,
    backends: Sequence[str] | None = None,
) -> ComparisonResult:
    """Compile the ONNX file at `path` with fusion, check it, and time it against the peers.

    Args:
        path: ONNX file.
        shapes: Shape of each input that has an unknown dimension.
        threads: For every engine; None for all CPUs this process may use.
        rounds: How often each engine is timed.
        peers: Names from `bench.peers.names()`; None for those of ONNX Runtime and OpenVINO that are installed.
        backends: Who may run parts for fusion; None for its default.

    Raises:
        ModelFileError: The file cannot be read.
        ShapeError: A dimension is unknown.
        OptionError: There is no such peer.
        EngineError: ONNX Runtime, which all are checked against, failed.
    """
    chosen = [name for name in STANDARD if bench.peers.installed(name)] if peers is None else list(peers)
    specs = inputs.read_specs(Path(path), shapes or {})
    plan = ComparisonPlan(threads or default_threads(), rounds, peers=tuple(chosen))
    shapes_of = {spec.name: spec.shape for spec in specs}
    named = None if backends is None else tuple(backends)
    job = Job(Path(path).resolve(), shapes_of, plan.threads, backends=named)
    return compare(job, plan, lambda seed: inputs.draw(specs, seed), name=Path(path).stem)


def compare(job: Job, plan: ComparisonPlan, draw: Callable[[int], Arrays], name: str) -> ComparisonResult:
    """Run `plan` on `job`, with inputs from `draw(seed)`. An engine that fails has its reason in the result.

    Raises:
        EngineError: ONNX Runtime, which all are checked against, failed.
    """
    shapes = {key: tuple(shape) for key, shape in job.shapes.items()}
    outcome = ComparisonResult(name, shapes, plan.threads, precision=job.precision)
    wanted = [OURS, *dict.fromkeys(plan.peers)]
    outcome.engines = {engine: EngineResult() for engine in wanted}
    checked = {seed: draw(seed) for seed in range(plan.checks)}
    with TemporaryDirectory(prefix="fusion-bench-") as folder, contextlib.ExitStack() as stack:
        workers = {}
        for engine in dict.fromkeys([*wanted, BASELINE, _MEASURES[job.precision]]):
            result = outcome.engines.setdefault(engine, EngineResult())
            with noting(result):
                workers[engine] = start(engine, job, plan=plan, folder=Path(folder), result=result, stack=stack)
        check(job, plan, workers, outcome.engines, checked)
        time_rounds(plan, {name: worker for name, worker in workers.items() if name in wanted}, outcome.engines, draw)
    for engine in set(outcome.engines) - set(wanted):
        del outcome.engines[engine]
    return outcome


@contextlib.contextmanager
def noting(result: EngineResult) -> Iterator[None]:
    """Write an engine's failure into its result instead of ending the comparison."""
    try:
        yield
    except EngineError as error:
        result.failure = str(error)
        result.rounds_ms.clear()
        result.others.clear()


def start(
    engine: str, job: Job, plan: ComparisonPlan, folder: Path, result: EngineResult, stack: contextlib.ExitStack
) -> Worker:
    """Return a worker that has loaded the model; compiling ahead of time happens in a process of its own."""
    if not bench.peers.installed(engine):
        raise EngineError("it is not installed")
    if engine == OURS and job.compiled:
        result.compile_s, result.saved = job.compiled.seconds, job.compiled.path is not None
    elif bench.peers.compiles_ahead(engine):
        with Worker(engine, plan.threads) as builder:
            result.compile_s, result.saved = builder.ask(plan.build_s, "build", job, folder)
    worker = stack.enter_context(Worker(engine, plan.threads))
    result.load_s = worker.ask(plan.load_s, "load", job, folder)
    if result.compile_s is None:
        result.compile_s = result.load_s
    return worker


def open_model(
    engine: str, job: Job, deadline_s: float, result: EngineResult, stack: contextlib.ExitStack
) -> Worker:
    """Return a worker that has opened the model for inputs of any shape."""
    if not bench.peers.installed(engine):
        raise EngineError("it is not installed")
    worker = stack.enter_context(Worker(engine, job.threads))
    result.load_s = worker.ask(deadline_s, "open", job)
    return worker


def check(
    job: Job,
    plan: ComparisonPlan,
    workers: Mapping[str, Worker],
    results: Mapping[str, EngineResult],
    checked: Mapping[int, Arrays],
    in_float64: Evaluate | None = None,
) -> None:
    """Put every engine's outputs through the gate. `in_float64` evaluates inputs; None for the job's file.

    Raises:
        EngineError: One that all are checked against has no results.
    """
    outputs: dict[str, list[Arrays]] = {}
    for engine, worker in workers.items():
        with noting(results[engine]):
            outputs[engine] = [worker.ask(plan.run_s, "run", arrays) for arrays in checked.values()]
    measure = _MEASURES[job.precision]
    for needed in (BASELINE, measure):
        if needed not in outputs:
            raise EngineError(f"{needed}, which all are checked against, has no results: {results[needed].failure}")
    in_float64 = in_float64 or functools.partial(evaluate, job.path)
    peers = [outputs[engine] for engine in outputs if engine != OURS]
    kind, references = _references(in_float64, checked.values(), outputs[BASELINE], peers)
    baseline = outputs[measure]
    for engine, produced in outputs.items():
        verdict = gate.Verdict(reference=kind, baseline=measure)
        for actual, base, reference in zip(produced, baseline, references, strict=True):
            gate.judge(verdict, actual, base, reference)
        results[engine].verdict = verdict


def _references(
    in_float64: Evaluate, checked: Iterable[Arrays], baseline: list[Arrays], peers: Iterable[list[Arrays]]
) -> tuple[str, list[Arrays]]:
    """Return what is right, and its name: the evaluation in float64, if there is one with which a peer agrees."""
    try:
        references = list(map(in_float64, checked))
    except NoReferenceError:
        return BASELINE, baseline
    believed = any(all(map(_agree, produced, references)) for produced in peers)
    return ("float64", references) if believed else (BASELINE, baseline)


def _agree(outputs: Arrays, reference: Arrays) -> bool:
    return all(
        name in outputs and gate.error_of(outputs[name], value) <= _UNBELIEVABLE for name, value in reference.items()
    )


def _settle(plan: ComparisonPlan, workers: Mapping[str, Worker], results: Mapping[str, EngineResult]) -> None:
    """Wait until the threads that checked the outputs sleep: those of the engines, and of NumPy's BLAS here, which
    spins for 2^26 cycles. The first engine's first round took up to twice the time beside them."""
    time.sleep(_BLAS_SPINS_S)
    for engine, worker in workers.items():
        with noting(results[engine]):
            worker.ask(plan.run_s, "settle")


def time_rounds(
    plan: ComparisonPlan, workers: dict[str, Worker], results: Mapping[str, EngineResult], draw: Callable[[int], Arrays]
) -> None:
    """Time the engines round by round, and read their memory at the end."""
    running = {engine: worker for engine, worker in workers.items() if not results[engine].failure}
    _settle(plan, running, results)
    for seed in range(plan.rounds):
        arrays = draw(seed)
        for engine, worker in list(running.items()):
            result = results[engine]
            with noting(result):
                seconds, others = worker.ask(plan.run_s, "measure", arrays, plan.round_s)
                result.rounds_ms.append(seconds * 1e3)
                result.others.append(others)
                result.idle_share = max(result.idle_share, worker.ask(plan.run_s, "settle"))
            if result.failure:
                del running[engine]
    for engine, worker in running.items():
        with noting(results[engine]):
            results[engine].peak_rss, results[engine].base_rss = worker.ask(plan.run_s, "rss")
