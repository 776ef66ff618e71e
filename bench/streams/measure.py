"""One stream of shapes through every engine, each in its own process, with the model's dimensions left open.

An engine runs a whole pass alone, the others asleep: one that compiles beside its calls must pay for it in its own
time. The engines take turns by pass: the first, from a cold start, of each of them, then the second of each of them.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bench import gate, protocol
from bench.peers import OURS, STANDARD
from bench.peers.engine import Arrays, Job
from bench.protocol import BASELINE
from bench.remote import EngineError, Worker
from bench.result import EngineResult
from bench.streams.against_static import StaticPlan, against_static
from bench.streams.choose import by_size, spread
from bench.streams.result import Shapes, StreamResult, describe
from bench.streams.sample import Sample

Draw = Callable[[Shapes, int], Arrays]
Samples = list[dict[str, Sample]]


@dataclass(frozen=True)
class StreamPlan:
    """How a stream is run.

    Attributes:
        threads: For every engine.
        peers: Engines to compare with, besides ours.
        checks: How many shapes go through the float64 gate, of the quarter of them that are smallest.
        statics: How many shapes ours is compiled for by themselves, spread over their sizes; with 0 it is compared
            with no static form.
        passes: How often the stream comes.
        call_s: Deadline in seconds of one call, which may compile.
    """

    threads: int
    peers: tuple[str, ...] = STANDARD
    checks: int = 2
    statics: int = 5
    passes: int = 1
    call_s: float = 300.0

    @property
    def deadlines(self) -> protocol.ComparisonPlan:
        """The plan of what streams have in common with other comparisons: only its deadlines count."""
        return protocol.ComparisonPlan(self.threads, peers=self.peers, run_s=self.call_s)


@dataclass
class _Running:
    """A stream under way: what is found, and the workers that opened the model."""

    found: StreamResult
    plan: StreamPlan
    draw: Draw
    workers: dict[str, Worker] = field(default_factory=dict)


def run_stream(job: Job, plan: StreamPlan, calls: Sequence[Shapes], draw: Draw, name: str) -> StreamResult:
    """Run `calls` in order, `plan.passes` times, on inputs from `draw(shapes, seed)`, each call with a seed of its own.

    Args:
        job: Without shapes.
        plan: How.
        calls: The shapes of all inputs, call by call.
        draw: Returns inputs for all engines.
        name: Of the model.

    Raises:
        EngineError: ONNX Runtime, which all are checked against, failed.
    """
    engines = list(dict.fromkeys((OURS, *plan.peers, BASELINE)))
    found = StreamResult(name, calls, plan.threads, {engine: EngineResult() for engine in engines})
    with contextlib.ExitStack() as stack:
        running = _Running(found, plan, draw)
        for number in range(plan.passes):
            outputs = {}
            for engine in engines:
                result = found.engines[engine]
                if number == 0:
                    with protocol.noting(result):
                        running.workers[engine] = protocol.open_model(
                            engine, job, deadline_s=plan.call_s, result=result, stack=stack
                        )
                if not result.failure:
                    outputs[engine] = _run_pass(running, engine, number * len(calls))
            _compare(found, outputs)
        _read_memory(running)
        _check(running, job)
    if plan.statics and not found.engines[OURS].failure:
        forms = StaticPlan(job, calls, lambda place: draw(calls[place], place), plan.statics, plan.call_s)
        try:
            found.against = against_static(forms)
        except EngineError as error:
            found.no_statics = str(error)
    return found


def _run_pass(running: _Running, engine: str, first_seed: int) -> Samples:
    """Return samples of the outputs of each call of a pass; fewer where the engine failed."""
    found, worker = running.found, running.workers[engine]
    samples: Samples = []
    times: list[float] = []
    if found.engines[engine].failure:
        return samples
    with protocol.noting(found.engines[engine]):
        for place, shapes in enumerate(found.calls):
            inputs = running.draw(shapes, first_seed + place)
            try:
                seconds, outputs = worker.ask(running.plan.call_s, "call", inputs)
            except EngineError as error:
                raise EngineError(f"call {place + 1} of the stream ({describe(shapes)}): {error}") from error
            times.append(seconds)
            samples.append(outputs)
            if worker.ask(running.plan.call_s, "compilations") > len(found.compiling):
                found.compiling.append(first_seed + place)
        found.passes[engine].append(times)
        worker.ask(running.plan.call_s, "settle")
    return samples


def _compare(found: StreamResult, outputs: dict[str, Samples]) -> None:
    """Compare a pass of each engine with that of ONNX Runtime.

    Raises:
        EngineError: That has no results.
    """
    failure = found.engines[BASELINE].failure
    if failure:
        raise EngineError(f"{BASELINE}, which all are checked against, has no results: {failure}")
    for engine, samples in outputs.items():
        if engine != BASELINE:
            for place, (actual, expected) in enumerate(zip(samples, outputs[BASELINE], strict=False)):
                _compare_call(found, engine, place, actual, expected)


def _compare_call(
    found: StreamResult, engine: str, place: int, actual: dict[str, Sample], expected: dict[str, Sample]
) -> None:
    for name, sample in expected.items():
        error = _error_of(actual.get(name), sample)
        found.errors[engine] = max(found.errors.get(engine, 0.0), error)
        if not error <= gate.TOLERANCE:
            found.wrong[engine].append(f"call {place + 1} ({describe(found.calls[place])}), {name}: error {error:.2e}")


def _error_of(actual: Sample | None, expected: Sample) -> float:
    if actual is None or actual.shape != expected.shape:
        return math.inf
    return gate.error_of(actual.elements, expected.elements)


def _read_memory(running: _Running) -> None:
    """Read the peak memory of all passes, and how many forms they left in ours."""
    for engine, worker in running.workers.items():
        result = running.found.engines[engine]
        if not result.failure:
            with protocol.noting(result):
                result.peak_rss, result.base_rss = worker.ask(running.plan.call_s, "rss")
                if engine == OURS:
                    running.found.forms = worker.ask(running.plan.call_s, "forms")


def _check(running: _Running, job: Job) -> None:
    """Put a few small shapes through the float64 gate, which would take minutes for large ones."""
    found = running.found
    ordered = by_size(found.calls)
    found.checked = spread(ordered[: len(ordered) // 4 + 1], running.plan.checks)
    workers = {engine: worker for engine, worker in running.workers.items() if not found.engines[engine].failure}
    inputs = {place: running.draw(found.calls[place], place) for place in found.checked}
    protocol.check(job, running.plan.deadlines, workers, found.engines, inputs)
