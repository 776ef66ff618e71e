"""All batches of one model through every engine, which opens it once, in a process of its own."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from bench import protocol
from bench.batches.images import BatchImages
from bench.batches.result import BatchesResult
from bench.peers import OURS, STANDARD
from bench.peers.engine import Job
from bench.protocol import BASELINE
from bench.remote import EngineError, Worker
from bench.result import ComparisonResult, EngineResult


@dataclass(frozen=True)
class BatchPlan:
    """How batches are run.

    Attributes:
        batches: Those that go through the gate.
        timed: Those of them that are timed.
        threads: For every engine.
        peers: Engines to compare with, besides ours.
        rounds: How often each engine is timed with each batch.
        round_s: Seconds per round and engine.
        call_s: Deadline in seconds of opening the model and of one call, which may compile.
    """

    batches: tuple[int, ...]
    timed: tuple[int, ...]
    threads: int
    peers: tuple[str, ...] = STANDARD
    rounds: int = protocol.ComparisonPlan.rounds
    round_s: float = protocol.ComparisonPlan.round_s
    call_s: float = 900.0

    @property
    def comparison(self) -> protocol.ComparisonPlan:
        """The plan of what one batch has in common with other comparisons."""
        return protocol.ComparisonPlan(self.threads, self.rounds, self.round_s, self.peers, run_s=self.call_s)


@dataclass
class _Running:
    """A model under way: the engines that opened it."""

    job: Job
    plan: BatchPlan
    images: BatchImages
    workers: dict[str, Worker] = field(default_factory=dict)


def run_batches(job: Job, plan: BatchPlan, images: BatchImages, name: str) -> BatchesResult:
    """Run the batches of `plan` in order; an engine that fails has its reason in the result.

    Args:
        job: Without shapes.
        plan: How.
        images: Of which batches are made.
        name: Of the model.
    """
    found, running = BatchesResult(name), _Running(job, plan, images)
    opened = {engine: EngineResult() for engine in dict.fromkeys((OURS, *plan.peers, BASELINE))}
    with contextlib.ExitStack() as stack:
        for engine, result in opened.items():
            with protocol.noting(result):
                running.workers[engine] = protocol.open_model(
                    engine, job, deadline_s=plan.call_s, result=result, stack=stack
                )
        for size in plan.batches:
            found.batches[size] = compared = _unmeasured(running, opened, size, name)
            with contextlib.suppress(EngineError):  # of ONNX Runtime, which is in the result as those of others are
                _run_batch(running, compared, size)
        if OURS in running.workers:
            with contextlib.suppress(EngineError):
                found.forms = running.workers[OURS].ask(plan.call_s, "forms")
    return found


def _unmeasured(running: _Running, opened: Mapping[str, EngineResult], size: int, name: str) -> ComparisonResult:
    """Return the result of a batch that no engine has run, given what opening the model told."""
    shapes = {each: array.shape for each, array in running.images.batch(size).items()}
    engines = {engine: dataclasses.replace(result, rounds_ms=[], others=[]) for engine, result in opened.items()}
    return ComparisonResult(f"{name}, batch {size}", shapes, running.plan.threads, engines)


def _run_batch(running: _Running, compared: ComparisonResult, size: int) -> None:
    plan, images, checked = running.plan.comparison, running.images, {0: running.images.batch(size)}
    protocol.check(
        running.job, plan, running.workers, compared.engines, checked, in_float64=lambda _: images.outputs(size)
    )
    if size in running.plan.timed:
        protocol.time_rounds(plan, running.workers, compared.engines, lambda seed: images.batch(size, seed))
