"""Rounds of one model: each engine in its own process, interleaved, with several callers and beside busy processes."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import bench.peers
from bench import protocol, zoo
from bench.peers import OURS
from bench.peers.engine import Arrays, Job
from bench.remote import Worker
from bench.result import EngineResult
from bench.serving.busy import busy_processes
from bench.serving.callers import Served
from fusion.system.cpus import allowed_cpus

ONNXRUNTIME, OPENVINO, OPENVINO_THROUGHPUT = "onnxruntime", "openvino", "openvino-throughput"
THROUGHPUT = (OURS, ONNXRUNTIME, OPENVINO_THROUGHPUT)
LATENCY = (OURS, ONNXRUNTIME, OPENVINO)
_INPUTS = 4
_STARTING_S = 0.2


@dataclass
class Serving:
    """What the engines did with one model.

    Attributes:
        engines: Of each engine the verdict of the gate, or why it has no numbers.
        served: By callers and engine, one entry a round.
        quiet, busy: Seconds of single calls by engine, of all rounds: alone, and beside as many busy processes as CPUs.
    """

    model: str
    engines: dict[str, EngineResult]
    served: dict[int, dict[str, list[Served]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    quiet: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    busy: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    @property
    def right(self) -> bool:
        """Whether ours passed the gate and returned the same bits to all callers."""
        ours = self.engines[OURS]
        equal = all(served.equal for engines in self.served.values() for served in engines[OURS])
        return not ours.failure and ours.verdict is not None and ours.verdict.passed and equal


def measure(name: str, threads: int, rounds: int, seconds: float, callers: Sequence[int]) -> Serving:
    """Return what the engines do with the zoo model `name`, each with so many threads of its own.

    Raises:
        EngineError: ONNX Runtime, which all are checked against, failed.
    """
    model = zoo.make(name)
    job = Job(model.path, model.shapes, threads, zoo_name=name)
    plan = protocol.ComparisonPlan(threads, rounds, seconds, checks=1)
    engines = [engine for engine in dict.fromkeys((*THROUGHPUT, *LATENCY)) if bench.peers.installed(engine)]
    found = Serving(name, {engine: EngineResult() for engine in engines})
    inputs = [model.inputs(seed) for seed in range(_INPUTS)]
    with TemporaryDirectory(prefix="fusion-bench-") as folder, contextlib.ExitStack() as stack:
        workers = {}
        for engine, result in found.engines.items():
            with protocol.noting(result):
                workers[engine] = protocol.start(
                    engine, job, plan=plan, folder=Path(folder), result=result, stack=stack
                )
        protocol.check(job, plan, workers, found.engines, {0: inputs[0]})
        for _ in range(rounds):
            for count in callers:
                _serve(found, plan, workers, inputs, count)
            _time_calls(found, plan, workers, inputs[0], found.quiet)
            with busy_processes(allowed_cpus()):
                time.sleep(_STARTING_S)
                _time_calls(found, plan, workers, inputs[0], found.busy)
    return found


def _serve(
    found: Serving, plan: protocol.ComparisonPlan, workers: dict[str, Worker], inputs: Sequence[Arrays], callers: int
) -> None:
    for engine in THROUGHPUT:
        if engine in workers and not found.engines[engine].failure:
            with protocol.noting(found.engines[engine]):
                served = workers[engine].ask(plan.run_s, "serve", inputs, callers, plan.round_s)
                found.served[callers][engine].append(served)
                workers[engine].ask(plan.run_s, "settle")


def _time_calls(
    found: Serving,
    plan: protocol.ComparisonPlan,
    workers: dict[str, Worker],
    inputs: Arrays,
    times: dict[str, list[float]],
) -> None:
    for engine in LATENCY:
        if engine in workers and not found.engines[engine].failure:
            with protocol.noting(found.engines[engine]):
                times[engine] += workers[engine].ask(plan.run_s, "latencies", inputs, plan.round_s)
                workers[engine].ask(plan.run_s, "settle")
