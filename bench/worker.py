"""The process in which one engine lives: `python -m bench.worker ENGINE FD`, driven by `bench.remote`.

It answers one request at a time over a socket and blocks on it in between, its threads asleep, so that it takes no time
from the engine that is being measured.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import bench.peers
from backends.machine_limits import MachineLimits
from bench import memory
from bench.peers.engine import (
    AheadOfTime,
    AnyShape,
    Arrays,
    Engine,
    Job,
    Kernels,
    Profiled,
    Runner,
    Specializing,
)
from bench.serve import serve
from bench.serving import callers
from bench.streams.sample import Sample, take_samples
from fusion.system import cpu_load

# Thread pools of ONNX Runtime, OpenMP and TVM spin for up to some 100 ms after a call before they sleep.
_SETTLE_STEP_S, _SETTLE_LIMIT_S = 0.005, 3.0
_IDLE_SHARE = 0.05
_WARM_RUNS = 2
_LEAST_TURNS = 9
"""Medians of three turns of calls of 50 ms said 1.15 and 1.28 of forms that nine put at 1.04 and 0.99."""


class Server:
    """The requests a worker answers; each method is one request."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._base_rss = memory.peak_rss()
        self._run: Runner | None = None

    def build(self, job: Job, folder: Path) -> tuple[float, bool]:
        """Return the seconds it took to compile `job` into `folder`, and whether it lies there now."""
        started = time.perf_counter()
        assert isinstance(self._engine, AheadOfTime), "this engine compiles when it loads"
        saved = self._engine.build(job, folder)
        return time.perf_counter() - started, saved

    def load(self, job: Job, folder: Path) -> float:
        """Return the seconds until the engine could take its first input."""
        started = time.perf_counter()
        self._run = self._engine.load(job, folder)
        return time.perf_counter() - started

    def open(self, job: Job) -> float:
        """Return the seconds until the engine could take inputs of any shape."""
        started = time.perf_counter()
        assert isinstance(self._engine, AnyShape), "this engine needs every shape"
        self._run = self._engine.open(job)
        return time.perf_counter() - started

    def call(self, inputs: Arrays) -> tuple[float, dict[str, Sample]]:
        """Return the seconds of one call, and samples of its outputs."""
        assert self._run is not None, "load comes first"
        started = time.perf_counter()
        outputs = self._run(inputs)
        return time.perf_counter() - started, take_samples(outputs)

    def forms(self) -> int | None:
        """Return how many forms the engine has of the model that it opened; None where it has no forms."""
        return self._engine.forms() if isinstance(self._engine, Specializing) else None

    def compilations(self) -> int:
        """Return how many calls of the model that the engine opened have compiled a form of it."""
        return self._engine.compilations() if isinstance(self._engine, Specializing) else 0

    def save(self, folder: Path) -> bool:
        """Return whether the model that the engine opened, with its forms, lies in `folder` now."""
        assert isinstance(self._engine, Specializing), "this engine has no forms"
        return self._engine.save(folder)

    def beside(self, job: Job, inputs: Arrays, seconds: float) -> tuple[float, float]:
        """Return the median seconds of calls of the model that was loaded, and of what the engine makes of `job`, or
        made of it before, which take turns for about `seconds`."""
        assert self._run is not None, "load comes first"
        assert isinstance(self._engine, AnyShape), "this engine needs every shape"
        made = job.compiled.path if job.compiled else None
        runs = self._run, self._engine.load(job, made.parent) if made else self._engine.open(job)
        for run in runs:
            run(inputs)
        self.settle()
        times: list[tuple[float, ...]] = []
        deadline = time.perf_counter() + seconds
        while len(times) < _LEAST_TURNS or time.perf_counter() < deadline:
            times.append(tuple(_seconds(run, inputs) for run in runs))
        loaded_s, other_s = map(statistics.median, zip(*times, strict=True))
        return loaded_s, other_s

    def run(self, inputs: Arrays) -> Arrays:
        """Return the outputs for `inputs`."""
        assert self._run is not None, "load comes first"
        return self._run(inputs)

    def measure(self, inputs: Arrays, seconds: float) -> tuple[float, float]:
        """Return the median seconds per call over one round of about `seconds`, and the load by others meanwhile."""
        assert self._run is not None, "load comes first"
        for _ in range(_WARM_RUNS):
            self._run(inputs)
        times: list[float] = []
        with cpu_load.watch() as load:
            deadline = time.perf_counter() + seconds
            while not times or time.perf_counter() < deadline:
                started = time.perf_counter()
                self._run(inputs)
                times.append(time.perf_counter() - started)
        return statistics.median(times), load.others

    def serve(self, inputs: Sequence[Arrays], count: int, seconds: float) -> callers.Served:
        """Return what so many callers at a time do in about `seconds`."""
        assert self._run is not None, "load comes first"
        return callers.serve(self._run, inputs, count, seconds)

    def latencies(self, inputs: Arrays, seconds: float) -> list[float]:
        """Return the seconds of each call over one round of about `seconds`."""
        assert self._run is not None, "load comes first"
        return callers.latencies(self._run, inputs, seconds)

    def kernels(self, inputs: Arrays, seconds: float) -> Kernels:
        """Return the kernels of a run and the time they take."""
        assert isinstance(self._engine, Profiled), "this engine does not say"
        return self._engine.kernels(inputs, seconds)

    def settle(self) -> float:
        """Wait until this process's threads sleep; return the share of one CPU they still used at the end."""
        share, deadline = 1.0, time.perf_counter() + _SETTLE_LIMIT_S
        while share > _IDLE_SHARE and time.perf_counter() < deadline:
            used, started = time.process_time(), time.perf_counter()
            time.sleep(_SETTLE_STEP_S)
            share = (time.process_time() - used) / (time.perf_counter() - started)
        return share

    def limits(self, threads: int) -> MachineLimits:
        """Return what the machine can do at most."""
        # Imports TVM, which only our own worker has loaded anyway.
        from fusion.report.measure_limits import measure_limits

        return measure_limits(threads)

    def rss(self) -> tuple[int, int]:
        """Return the peak resident bytes so far, and those right after the engine's library was imported."""
        return memory.peak_rss(), self._base_rss


def _seconds(run: Runner, inputs: Arrays) -> float:
    started = time.perf_counter()
    run(inputs)
    return time.perf_counter() - started


def main() -> None:
    """Serve the engine named on the command line over the inherited socket."""
    name, descriptor = sys.argv[1:]
    serve(int(descriptor), lambda: Server(bench.peers.engine(name)))


if __name__ == "__main__":
    main()
